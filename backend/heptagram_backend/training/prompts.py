"""Where examples come from: own tools, BFCL's ``live_*`` files, ordinary talk. All is drawn from a seed.

Examples come in groups. Those of one group often declare the same tools, so their prompts begin alike and are computed
once (``pack.py``). Group ``i`` of a seed is the same whatever was drawn before it, which makes a run resumable.

========  =====  ==========================================================================================
source    share  what
========  =====  ==========================================================================================
own       0.70   6 questions about 1 to 5 declared tools: a call, two calls, none that fits, a result
BFCL      0.18   2 short prompts of :data:`heptagram_backend.training.bfcl.TRAINING`, where it is installed
chat      0.12   4 ordinary prompts, half of the groups with tools declared; the base's own answers
========  =====  ==========================================================================================
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from jsonschema import Draft202012Validator

from heptagram_backend.training import bfcl, phrases
from heptagram_backend.training.example import Call, Example
from heptagram_backend.training.tools import OwnTool, Style, own_tools
from heptagram_backend.training.values import drawn, filled, read_data

OWN_GROUP, BFCL_GROUP, CHAT_GROUP = 6, 2, 4
_LONGEST_TOOLS: Final = 1_800  # characters of BFCL's declarations
_OF_BFCL, _OF_CHAT = 0.18, 0.12


@dataclass(frozen=True, slots=True)
class Prompts:
    """Draws groups of examples. ``chat`` are the base model's answers to ``chat_prompts()``; without them, and without
    BFCL, their shares go to own tools. With ``held`` only tools are drawn that training never shows."""

    seed: int
    chat: Sequence[Example] = ()
    held: bool = False
    bfcl: bool = field(default_factory=lambda: bfcl.data_folder() is not None)

    def group(self, index: int) -> list[Example]:
        """The examples of one group; the same for the same seed and index."""
        dice = random.Random(f"{self.seed} {index}")
        share = dice.random()
        if share < _OF_CHAT and self.chat and not self.held:
            return self._talk(dice)
        if share > 1 - _OF_BFCL and self.bfcl and not self.held:
            return [_learnt(record, dice) for record in dice.sample(learnable(), BFCL_GROUP)]
        return self._own(dice)

    def examples(self, start: int = 0) -> Iterator[Example]:
        """Endlessly, one after the other, from group ``start`` on."""
        while True:
            yield from self.group(start)
            start += 1

    def _own(self, dice: random.Random) -> list[Example]:
        pool, style = own_tools(held=self.held), Style.draw(dice)
        tools = dice.sample(pool, dice.choice((1, 1, 2, 2, 3, 3, 4, 5)))
        system = dice.choice(phrases.SYSTEMS) if dice.random() < 0.15 else None
        others = [tool for tool in pool if tool not in tools]
        scene = _Scene(tools, others, style, system, dice)
        return [scene.example() for _ in range(OWN_GROUP)]

    def _talk(self, dice: random.Random) -> list[Example]:
        chosen = dice.sample(self.chat, min(CHAT_GROUP, len(self.chat)))
        if dice.random() < 0.5:
            return chosen
        style = Style.draw(dice)
        tools = [style.declare(tool) for tool in dice.sample(own_tools(held=False), dice.choice((1, 2, 3)))]
        return [replace(example, request={**example.request, "tools": tools}) for example in chosen]


def chat_prompts() -> Sequence[Mapping[str, Any]]:
    """Bodies of ordinary requests, to be answered by the base model."""
    return [{"messages": [{"role": "user", "content": text}]} for text in read_data("chat.yaml")]


@cache
def learnable() -> Sequence[bfcl.Record]:
    """BFCL's records for training that are short, and whose first accepted answer fits the declared schemas."""
    found = bfcl.training_records()
    wanted = [record for record in found if record.accepted]
    refused = [record for record in found if not record.accepted][:: _every(found, wanted)]
    return [
        record
        for record in wanted + refused
        if len(json.dumps(record.tools)) <= _LONGEST_TOOLS and _is_valid(record.example())
    ]


def _every(found: Sequence[bfcl.Record], wanted: Sequence[bfcl.Record]) -> int:
    """One refusal for four calls."""
    return max(1, 4 * (len(found) - len(wanted)) // len(wanted))


def _is_valid(example: Example) -> bool:
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in example.tools}
    return all(Draft202012Validator(schemas[call.name]).is_valid(call.arguments) for call in example.calls)


def _learnt(record: bfcl.Record, dice: random.Random) -> Example:
    example = record.example()
    return example if example.calls else replace(example, text=phrases.refusal(_names(example.tools), dice))


def _names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


@dataclass(frozen=True, slots=True)
class _Scene:
    """The declared ``tools`` of a group, and ``others`` that are not declared."""

    tools: Sequence[OwnTool]
    others: Sequence[OwnTool]
    style: Style
    system: str | None
    dice: random.Random

    def example(self) -> Example:
        chance = self.dice.random()
        if chance < 0.12:
            return self._refused()
        if chance < 0.30:
            return self._twice()
        told = [tool for tool in self.tools if tool.says]
        if chance < 0.42 and told:
            return self._told(self.dice.choice(told))
        text, call = self._asked(self.dice.choice(self.tools))
        return self._made([_user(phrases.polite(text, self.dice))], calls=(call,))

    def _asked(self, tool: OwnTool, like: str = "") -> tuple[str, Call]:
        """A question or a demand; of the kind of ``like`` where the tool has one."""
        asks = [ask for ask in tool.asks if like and ask.startswith("?") == like.startswith("?")] or tool.asks
        text, arguments = tool.draw(self.dice.choice(asks), self.dice)
        return text, self.style.call(tool, arguments)

    def _refused(self) -> Example:
        text, _ = self._asked(self.dice.choice(self.others))
        answer = phrases.refusal(_names(self._declared()), self.dice)
        return self._made([_user(phrases.polite(text, self.dice))], text=answer)

    def _twice(self) -> Example:
        one, first = self._asked(self.dice.choice(self.tools))
        other, second = self._asked(self.dice.choice(self.tools), like=one)
        if first == second:
            return self._made([_user(phrases.polite(one, self.dice))], calls=(first,))
        return self._made([_user(phrases.joined(one, other, self.dice))], calls=(first, second))

    def _told(self, tool: OwnTool) -> Example:
        """A call and its result, to be put into words."""
        text, arguments = tool.draw(self.dice.choice(tool.asks), self.dice)
        call = self.style.call(tool, arguments)
        result = {name: drawn(kind, self.dice) for name, kind in tool.gives.items()}
        if any(f"{{{name}}}" in tool.says for name in tool.takes.keys() - arguments.keys()):
            return self._made([_user(phrases.polite(text, self.dice))], calls=(call,))
        said = filled(tool.says, {**arguments, **result}, {**tool.takes, **tool.gives}, random.Random(0))
        if self.dice.random() < 0.15:
            fault = self.dice.choice(phrases.FAULTS)
            result, said = {"error": fault}, f"That did not work: {fault}."
        id = f"call_{self.dice.randrange(10**6)}"
        function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
        messages = [
            _user(phrases.polite(text, self.dice)),
            {"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": id, "content": json.dumps(result, ensure_ascii=False)},
        ]
        return self._made(messages, text=said)

    def _made(self, messages: list[dict[str, Any]], *, text: str = "", calls: tuple[Call, ...] = ()) -> Example:
        head = [{"role": "system", "content": self.system}] if self.system else []
        return Example("own", {"messages": head + messages, "tools": self._declared()}, text, calls)

    def _declared(self) -> list[dict[str, Any]]:
        return [self.style.declare(tool) for tool in self.tools]


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}
