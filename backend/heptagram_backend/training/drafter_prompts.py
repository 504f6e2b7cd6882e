"""What a target is asked, so that its answers teach a drafter: tool calls of many tools, answers without a call, talk,
code and sums. All is drawn from a seed; request ``n`` of a seed is the same whatever their number.

========  =====  =============================================================================================
kind      share  what
========  =====  =============================================================================================
tool      0.80   own tools, and BFCL's ``live_*`` files where they are installed; a call is demanded, which the
                 grammar makes of it, or left to the target, which then mostly talks about the tools
chat      0.14   a form and a subject
code      0.04   a form and a task
math      0.02   sums
========  =====  =============================================================================================

Over-fitting to the tools that were seen is what to watch for, so an eighth of the tools, the subjects and the tasks is
held out. Requests with the same tools stand a few places apart: they run at about the same time, but the first one's
prompt is computed when the next one comes, and found in the prefix cache.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final
from zlib import crc32

from heptagram_backend.training import bfcl
from heptagram_backend.training.answers import Ask
from heptagram_backend.training.prompts import Prompts
from heptagram_backend.training.values import read_data

MAX_TOKENS: Final = 96
_LANES: Final = 12
_GROUP: Final = 4
_HELD: Final = 8
_SHARES: Final = {"tool": 0.80, "chat": 0.14, "code": 0.04, "math": 0.02}
_OF_BFCL: Final = 0.35  # of the tools
_LEFT_TO_IT: Final = 0.1  # of the requests with tools
_LONGEST_TOOLS: Final = 3_000  # characters of BFCL's declarations


def asks(seed: int, count: int) -> list[Ask]:
    """The first ``count`` requests of a seed."""
    lanes: list[Iterator[Ask]] = [_lane(seed, lane) for lane in range(_LANES)]
    turns = -(-count // _LANES)
    return [next(lane) for _ in range(turns) for lane in lanes][:count]


def _lane(seed: int, lane: int) -> Iterator[Ask]:
    number = lane
    while True:
        dice = random.Random(f"{seed} {number}")
        kind = dice.choices(list(_SHARES), list(_SHARES.values()))[0]
        yield from _tools(dice, seed, number) if kind == "tool" else _talk(kind, dice)
        number += _LANES


def _tools(dice: random.Random, seed: int, number: int) -> Iterator[Ask]:
    if dice.random() < _OF_BFCL and _tool_sets():
        group, requests = dice.choice(_tool_sets())
        chosen = dice.sample(requests, min(_GROUP, len(requests)))
        held = crc32(group.encode()) % _HELD == 0
    else:
        held = dice.random() < 1 / _HELD
        chosen = [example.request for example in Prompts(seed, held=held, bfcl=False).group(number)]
        group = _names(chosen[0])
    for request in chosen:
        answered = request["messages"][-1]["role"] != "user"
        choice = "auto" if answered or dice.random() < _LEFT_TO_IT else "required"
        kind = "tool" if choice == "required" else "about tools"
        yield Ask(kind, group, {**request, "tool_choice": choice, "max_tokens": MAX_TOKENS}, held)


@cache
def _tool_sets() -> Sequence[tuple[str, Sequence[Mapping[str, Any]]]]:
    """BFCL's records for training by the tools that they declare, short ones only."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for record in bfcl.training_records() if bfcl.data_folder() is not None else ():
        request = {"messages": list(record.messages), "tools": list(record.tools)}
        if record.tools and len(str(record.tools)) <= _LONGEST_TOOLS:
            found.setdefault(_names(request), []).append(request)
    return tuple(found.items())


def _names(request: Mapping[str, Any]) -> str:
    return " ".join(sorted(tool["function"]["name"] for tool in request["tools"]))


def _talk(kind: str, dice: random.Random) -> Iterator[Ask]:
    """As many as of a tool set, each about something else."""
    words = read_data("talk.yaml")
    for _ in range(_GROUP):
        if kind == "math":
            a, b = dice.randint(2, 90), dice.randint(2, 40)
            text = dice.choice(words["sums"]).format(a=a, b=b, name=dice.choice(words["names"]))
            about = f"{a} {b}"
        elif kind == "code":
            about = dice.choice(words["tasks"])
            text = dice.choice(words["code_forms"]).format(task=about)
        else:
            about = dice.choice(words["subjects"])
            text = dice.choice(words["forms"]).format(subject=about, other=dice.choice(words["subjects"]))
        held = crc32(about.encode()) % _HELD == 0
        yield Ask(kind, about, {"messages": [{"role": "user", "content": text}], "max_tokens": MAX_TOKENS}, held)
