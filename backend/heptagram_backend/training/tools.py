"""Own tools: each can be declared in several styles, asked for in several ways, and answered."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from heptagram_backend.training.example import Call
from heptagram_backend.training.values import Kind, declared, described, drawn, filled, read_data

_SLOT: Final = re.compile(r"\{([a-z_]+)")
_OPTIONAL: Final = "~"
_HELD_EVERY: Final = 8
_TOOL_NAMES: Final = ("{snake}", "{snake}", "{camel}", "{kebab}", "{domain}_{snake}", "{pascal}")


@dataclass(frozen=True, slots=True)
class OwnTool:
    """One entry of ``tools.yaml``; ``takes`` without the marks of optional parameters."""

    domain: str
    name: str
    about: str
    takes: Mapping[str, Kind]
    required: tuple[str, ...]
    asks: tuple[str, ...]
    gives: Mapping[str, Kind]
    says: str

    def draw(self, ask: str, dice: random.Random) -> tuple[str, dict[str, Any]]:
        """A sentence made of ``ask``, and the arguments that it speaks of in the order of the declaration."""
        spoken = set(_SLOT.findall(ask))
        arguments = {name: drawn(kind, dice) for name, kind in self.takes.items() if name in spoken}
        for name, kind in self.takes.items():  # of an object only what is spoken of
            if isinstance(kind, Mapping) and "each" not in kind and name in arguments:
                arguments[name] = {
                    inner: value for inner, value in arguments[name].items() if f"{{{name}.{inner}" in ask
                }
        return filled(ask, arguments, self.takes, dice), arguments


@cache
def own_tools(*, held: bool) -> Sequence[OwnTool]:
    """All but every eighth tool, or these, which are held back to see what was learnt."""
    entries = [(domain, *entry) for domain, tools in read_data("tools.yaml").items() for entry in tools.items()]
    made = [_made(*entry) for entry in entries]
    return [tool for place, tool in enumerate(made) if (place % _HELD_EVERY == _HELD_EVERY - 1) == held]


def _made(domain: str, name: str, entry: Mapping[str, Any]) -> OwnTool:
    takes = {parameter.rstrip(_OPTIONAL): kind for parameter, kind in entry["takes"].items()}
    required = tuple(parameter for parameter in entry["takes"] if not parameter.endswith(_OPTIONAL))
    return OwnTool(
        domain,
        name,
        entry["about"],
        takes,
        required,
        tuple(entry["asks"]),
        entry.get("gives", {}),
        entry.get("says", ""),
    )


@dataclass(frozen=True, slots=True)
class Style:
    """How the tools of one request are written down: a model is to copy names, not to know them.

    ``tool_name`` is one of ``_TOOL_NAMES``.
    """

    tool_name: str
    parameter_name: Callable[[str], str]
    with_descriptions: bool
    closed: bool
    function_strict: bool

    @classmethod
    def draw(cls, dice: random.Random) -> Style:
        return cls(
            tool_name=dice.choice(_TOOL_NAMES),
            parameter_name=dice.choice((str, str, str, camel)),
            with_descriptions=dice.random() < 0.4,
            closed=dice.random() < 0.3,
            function_strict=dice.random() < 0.2,
        )

    def declare(self, tool: OwnTool) -> dict[str, Any]:
        """The tool in OpenAI's form."""
        properties = {self.parameter_name(name): self._property(name, kind) for name, kind in tool.takes.items()}
        parameters: dict[str, Any] = {"type": "object", "properties": properties}
        if tool.required:
            parameters["required"] = [self.parameter_name(name) for name in tool.required]
        if self.closed:
            parameters["additionalProperties"] = False
        function: dict[str, Any] = {"name": self._name(tool), "description": tool.about}
        if self.function_strict:
            function["strict"] = True
        return {"type": "function", "function": {**function, "parameters": parameters}}

    def call(self, tool: OwnTool, arguments: Mapping[str, Any]) -> Call:
        named = {self.parameter_name(name): value for name, value in arguments.items()}
        return Call(self._name(tool), named)

    def _name(self, tool: OwnTool) -> str:
        cased = camel(tool.name)
        return self.tool_name.format(
            snake=tool.name,
            camel=cased,
            pascal=cased[0].upper() + cased[1:],
            kebab=tool.name.replace("_", "-"),
            domain=tool.domain.partition("_")[0],
        )

    def _property(self, name: str, kind: Kind) -> dict[str, Any]:
        schema = declared(kind)
        return {**schema, "description": described(name, kind)} if self.with_descriptions else schema


def camel(name: str) -> str:
    """
    >>> camel("start_time")
    'startTime'
    """
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
