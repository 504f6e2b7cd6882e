"""A version proves itself before anybody is answered by it: ready, a constrained call, an ordinary answer, a suite."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jsonschema

from heptagram_backend.errors import RolloutError
from heptagram_backend.rollout.files import pinned_ensembles
from heptagram_backend.server.process import Address, is_ready
from heptagram_wire import tensors as names

_TIMEOUT_S: Final = 300.0
_SCHEMA: Final = {
    "type": "object",
    "properties": {"command": {"type": "string", "maxLength": 40}},
    "required": ["command"],
    "additionalProperties": False,
}
_CALL: Final = {
    "messages": [{"role": "user", "content": "Show the current directory."}],
    "tools": [{"type": "function", "function": {"name": "shell", "strict": True, "parameters": _SCHEMA}}],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "max_tokens": 256,
}
_CHAT: Final = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16}


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and what its answer must be: the names of its calls in order, or a text that it must hold."""

    name: str
    request: Mapping[str, Any]
    calls: tuple[str, ...] | None = None
    text: str | None = None

    def judge(self, events: Iterable[Mapping[str, Any]]) -> str | None:
        """What is wrong with the answer; None when it is right."""
        told = list(events)
        last = told[-1] if told else {"type": "nothing"}
        if last["type"] != "finish":
            return f"ended with {last.get('message', last['type'])}"
        calls = tuple(event["name"] for event in told if event["type"] == "call_start")
        text = "".join(event["text"] for event in told if event["type"] == "text_delta")
        if self.calls is not None and calls != self.calls:
            return f"calls {', '.join(calls) or 'nothing'} instead of {', '.join(self.calls)}"
        if self.text is not None and self.text not in text:
            return f"answers {text[:80]!r} without {self.text!r}"
        return None


class _Call(Case):
    """The built-in call: its arguments are validated here once more, not only by the server."""

    __slots__ = ()

    def judge(self, events: Iterable[Mapping[str, Any]]) -> str | None:
        told = list(events)
        wrong = super().judge(told)
        if wrong:
            return wrong
        text = "".join(event["text"] for event in told if event["type"] == "arguments_delta")
        try:
            jsonschema.validate(json.loads(text), _SCHEMA)
        except (ValueError, jsonschema.ValidationError) as error:
            return f"its arguments {text[:80]!r} are invalid: {error}"
        return None


BUILT_IN: Final = (_Call("constrained", _CALL, calls=("shell",)), Case("ordinary", _CHAT))


def read_suite(path: Path) -> tuple[Case, ...]:
    """JSON lines ``{"request": {...}, "calls": ["NAME", ...], "text": "..."}``; what is absent is not looked at.

    Raises:
        RolloutError: the file is missing or a line is none of these.
    """
    cases = []
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line.strip():
                data = json.loads(line)
                calls = data.pop("calls", None)
                cases.append(Case(f"{path.name}:{number}", calls=None if calls is None else tuple(calls), **data))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise RolloutError(
            f"{path}: each line must be an object with `request`, `calls` and `text` ({error})"
        ) from error
    return tuple(cases)


def check_version(address: Address, version: int, cases: Sequence[Case] = BUILT_IN) -> None:
    """Send each case to the ensemble that is pinned to ``version``.

    Raises:
        RolloutError: it is not ready, or answers wrongly; the message names each case that failed.
    """
    chat = pinned_ensembles(version)[0]
    if not is_ready(address, chat):
        raise RolloutError(f"version {version} is not ready: {chat} does not answer")
    wrong = {case.name: case.judge(_ask(address, chat, case)) for case in cases}
    failed = [f"{name} {reason}" for name, reason in wrong.items() if reason]
    if failed:
        raise RolloutError(f"version {version} failed {len(failed)} of {len(cases)} requests: {'; '.join(failed)}")


def _ask(address: Address, ensemble: str, case: Case) -> list[Mapping[str, Any]]:
    connection = http.client.HTTPConnection(address.reachable_host, address.http_port, timeout=_TIMEOUT_S)
    try:
        body = json.dumps({names.REQUEST: json.dumps({**case.request, "stream": False})})
        connection.request("POST", f"/v2/models/{ensemble}/generate", body)
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        return [{"type": "failure", "message": f"no answer ({error})"}]
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        return [{"type": "failure", "message": answer.get("error", str(response.status))}]
    events = answer[names.EVENTS]
    return [json.loads(event) for event in ([events] if isinstance(events, str) else events)]
