"""Sentences around what own tools are asked for. A leading ``?`` of a template marks a question."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

SYSTEMS: Final = (
    "You are a helpful assistant.",
    "Be brief.",
    "You are an assistant in a phone app. Use the tools where they help.",
    "Answer in English. Today is 2025-06-02.",
    "You work for the help desk of a small company.",
)
FAULTS: Final = ("not found", "permission denied", "the service is busy", "timed out", "invalid identifier")

_DEMANDS: Final = (
    "{A}.",
    "{A}.",
    "{A}.",
    "{a}",
    "{A}, please.",
    "Please {a}.",
    "Can you {a}?",
    "Could you {a}, please?",
    "I need you to {a}.",
    "I'd like you to {a}.",
    "Hey, {a}.",
    "Would you mind? {A}.",
)
_QUESTIONS: Final = ("{A}?", "{A}?", "{A}?", "{a}?", "Quick question: {a}?", "Hi! {A}?", "{A}? Thanks.")
_BOTH_DEMANDS: Final = (
    "{A}, and {b}.",
    "{A}. Then {b}.",
    "{A}. Also, {b}.",
    "Please {a} and {b}.",
    "Two things: {a}; {b}.",
)
_BOTH_QUESTIONS: Final = ("{A}? And {b}?", "{A}, and {b}?", "{A}? Also, {b}?")
_MIXED: Final = ("{A}{x} {B}{y}", "{A}{x} Also: {b}{y}")
_REFUSALS: Final = (
    "None of the tools I have here can do that.",
    "I'm sorry, I can't do that: I only have {names}.",
    "There is no tool for that here.",
    "I can't help with that using {names}.",
    "That is not something that {names} can do.",
    "I don't have a tool for that. I could only use {names}.",
)


def polite(ask: str, dice: random.Random) -> str:
    """One demand or question as a user may word it."""
    return _worded(dice.choice(_QUESTIONS if ask.startswith("?") else _DEMANDS), a=ask)


def joined(one: str, other: str, dice: random.Random) -> str:
    """Two of them in one message."""
    marks = [text.startswith("?") for text in (one, other)]
    templates = _BOTH_QUESTIONS if all(marks) else _MIXED if any(marks) else _BOTH_DEMANDS
    ends = ["?" if mark else "." for mark in marks]
    return _worded(dice.choice(templates), a=one, b=other, x=ends[0], y=ends[1])


def refusal(names: Sequence[str], dice: random.Random) -> str:
    """An answer where none of the tools ``names`` fits."""
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return dice.choice(_REFUSALS).replace("{names}", listed if len(names) < 4 else "other tools")


def _worded(template: str, *, a: str, b: str = "", x: str = "", y: str = "") -> str:
    a, b = a.removeprefix("?"), b.removeprefix("?")
    slots = {"a": a, "A": a[:1].upper() + a[1:], "b": b, "B": b[:1].upper() + b[1:], "x": x, "y": y}
    return template.format_map(slots)
