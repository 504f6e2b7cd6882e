"""What is asked: real tool sets and BFCL prompts, under every tool choice that demands a call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.conformance import bfcl

_FOLDER: Final = Path(__file__).resolve().parents[1] / "data" / "toolsets"

PROMPTS: Final[Mapping[str, tuple[str, ...]]] = {
    "fetch": (
        "Show me the first 2000 characters of https://example.org/news.",
        "Read the page https://example.org/a?b=c&d=e#f as raw HTML.",
        "What does the documentation at https://docs.example.com/start say?",
    ),
    "codex": (
        "List the files of the current folder, hidden ones too.",
        'Run `grep -rn "a \\"quoted\\" word" src | head` and wait at most two seconds.',
        "You may not write to /etc yet. Ask for it.",
    ),
    "memory": (
        "Remember that Ada Lovelace wrote the first program and knew Charles Babbage.",
        "Forget everything about the old office in Zürich.",
        "What do we know about the project Heron?",
    ),
    "git": (
        "Commit what is staged in /srv/app with the message: fix the parser's last case.",
        "What changed on main in /srv/app since Monday?",
        "Stage README.md and src/main.c in ~/code, then show the state.",
    ),
    "filesystem": (
        "Rename notes.txt to notes-2024.txt in /home/me.",
        "Replace every tab in /tmp/a.py by four spaces, but only show me what would change.",
        "Show the tree below /var/log without *.gz.",
    ),
    "opencode": (
        "Find all TypeScript files that mention useEffect.",
        "Ask me whether to use tabs or spaces, one choice only.",
        "Write down the next steps: test, review, release.",
    ),
    "playwright": (
        "Open https://example.org and press the button Sign in.",
        "Drag the card Draft to the column Done.",
        "Make the window 1280 by 720 and save the page as a PDF.",
    ),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One request that demands a call. ``choice`` is the named tool, ``None`` stands for ``required``."""

    source: str
    id: str
    text: str
    tools: tuple[dict[str, Any], ...]
    choice: str | None
    parallel: bool

    @property
    def mode(self) -> str:
        return f"{'named' if self.choice else 'required'}, {'parallel' if self.parallel else 'one call'}"

    @property
    def declared(self) -> dict[str, Any]:
        """The schemas by tool name, as the caller declares them."""
        return {tool["function"]["name"]: tool["function"]["parameters"] for tool in self.tools}

    def request(self, max_tokens: int) -> dict[str, Any]:
        named = {"type": "function", "function": {"name": self.choice}}
        return {
            "messages": [{"role": "user", "content": self.text}],
            "tools": list(self.tools),
            "tool_choice": named if self.choice else "required",
            "parallel_tool_calls": self.parallel,
            "max_tokens": max_tokens,
        }

    def without(self, index: int) -> Case | None:
        """The same case without a tool that was refused; ``None`` where nothing is left to ask."""
        name = self.tools[index]["function"]["name"]
        tools = self.tools[:index] + self.tools[index + 1 :]
        return replace(self, tools=tools) if tools and name != self.choice else None


def toolset(name: str) -> tuple[dict[str, Any], ...]:
    return tuple(json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def required_of_toolsets() -> Iterator[Case]:
    """Each prompt of each set, ``required``, with and without parallel calls."""
    for name, prompts in PROMPTS.items():
        for number, text in enumerate(prompts):
            for parallel in (True, False):
                yield Case(name, f"{name}-{number}", text, toolset(name), None, parallel)


def named_of_toolsets(*, neighbours: int | None = None) -> Iterator[Case]:
    """Each tool of each set as the named choice, beside all tools of its set or only so many that follow it."""
    for name, prompts in PROMPTS.items():
        tools = toolset(name)
        for number, tool in enumerate(tools):
            around = tools[number:] + tools[:number]
            declared = tools if neighbours is None else around[: neighbours + 1]
            choice = tool["function"]["name"]
            for parallel in (True, False):
                yield Case(name, f"{name}-{choice}", prompts[number % len(prompts)], declared, choice, parallel)


def of_bfcl(count: int) -> Iterator[Case]:
    """Each prompt as ``required`` and with one of its tools named, with and without parallel calls."""
    for number, prompt in enumerate(bfcl.sample(count)):
        choice = prompt.tools[number % len(prompt.tools)]["function"]["name"]
        for named in (None, choice):
            for parallel in (True, False):
                yield Case(f"bfcl {prompt.category}", prompt.id, prompt.text, prompt.tools, named, parallel)


def alternate(cases: Iterable[Case]) -> list[Case]:
    """Of each neighbouring pair, with and without parallel calls, one: as many of this kind as of that everywhere."""
    listed = list(cases)
    pairs = zip(listed[0::2], listed[1::2], strict=True)
    return [pair[(place + place // 2 + place // 8) % 2] for place, pair in enumerate(pairs)]


def spread(cases: Sequence[Case], count: int) -> list[Case]:
    """``count`` cases at even distances."""
    return [cases[number * len(cases) // count] for number in range(count)]
