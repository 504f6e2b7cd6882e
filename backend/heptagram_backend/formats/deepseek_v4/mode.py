"""Whether the model is to think, how hard, and what becomes of what it thought before.

Thinking is off unless the request turns it on: ``chat_template_kwargs`` ``{"thinking": true}`` does (its switch
``enable_thinking`` is the same), and so does any ``reasoning_effort`` but ``none``. ``drop_thinking`` (true by default)
leaves the reasoning of turns before the last question out of the prompt; where tools are declared it is always kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heptagram_backend.conversation import ChatRequest, Conventions
from heptagram_backend.requests.fields import Fields, invalid
from heptagram_backend.requests.options import read_effort

_PATH: Final = "chat_template_kwargs"


@dataclass(frozen=True, slots=True)
class Mode:
    """``effort`` is as the request has it; ``None`` when it leaves it to the model."""

    thinking: bool = False
    effort: str | int | None = None
    drop_thinking: bool = True


def read_mode(request: ChatRequest, conventions: Conventions) -> Mode:
    """Read the mode of a request.

    Raises:
        RequestError: a switch of ``chat_template_kwargs`` is unknown or of a wrong type, or two of them disagree.
    """
    switches = Fields(dict(request.chat_template_kwargs), _PATH)
    asked = _thinking(switches)
    effort = _effort(request, switches, conventions)
    drop = switches.flag("drop_thinking", True)
    switches.refuse_unknown()
    thinking = bool(asked) if effort is None else effort != "none"
    if asked not in (None, thinking):
        raise invalid(f"{_PATH}.thinking", f"disagrees with the reasoning_effort {effort!r}; send one of them")
    return Mode(thinking, effort if thinking else None, drop)


def _thinking(switches: Fields) -> bool | None:
    asked = {switches.flag(key, False) for key in ("thinking", "enable_thinking") if switches.get(key) is not None}
    if len(asked) == 2:
        raise invalid(switches.at("enable_thinking"), "differs from `thinking`; send one of them")
    return asked.pop() if asked else None


def _effort(request: ChatRequest, switches: Fields, conventions: Conventions) -> str | int | None:
    inner, outer = read_effort(switches, conventions), request.reasoning_effort
    if None not in (inner, outer) and inner != outer:
        raise invalid(switches.at("reasoning_effort"), "differs from `reasoning_effort`; send one of them")
    return inner if outer is None else outer
