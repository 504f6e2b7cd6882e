r"""Text without a marker, as EBNF: what may stand raw between two tags. No grammar library.

The marker is a word between two equal bars, such as ``|WORD|``. Text is free of it if and only if no part between two
neighbouring bars *is* that word; so it can be written without a matching automaton, and a mask over it costs as little
as one over any text (measured: 7 to 18 microseconds with 129,280 tokens, against 60,000 for a counted class).
"""

from __future__ import annotations

from heptagram_backend.caller_grammar import class_of
from heptagram_backend.ebnf import Rules, literal
from heptagram_backend.schema.charset import EVERYTHING, Ranges, complement, intersection, of


def text_without(marker: str, *, least: int = 0, other_than: str = "") -> tuple[str, str]:
    """EBNF bodies of text without ``marker`` and without the characters ``other_than``: its first characters, and the
    rest. With ``least`` of 2 or more that many stand first and hold no bar, which is narrower than need be.
    """
    bar, word = _parts(marker)
    plain = _all_but(bar + other_than)
    between = _not_the_word(bar, word, other_than)
    last = literal(bar + word)
    pieces = f"({literal(bar)} {between})"
    if least == 1:
        return '""', f'({plain}+ {pieces}* ("" | {last}) | {pieces}+ ("" | {last}) | {last})'
    return f"{plain}{{{least}}}" if least else '""', f'({plain}* {pieces}* ("" | {last}))'


def text_without_tag(
    tag: str, name: str, *, least: int = 0, other_than: str = "", not_first: str = ""
) -> tuple[str, Rules]:
    """The same for a tag such as ``</WORD>``, whose first character does not come again in it: EBNF of the first
    characters, and rules whose first one, ``name``, is the rest.

    It is an automaton, right-linear: one rule for each character of the tag that has come. ``not_first`` leaves out
    text that begins with one of these characters; it goes with no ``least``. An empty tag is none.
    """
    bar = tag[:1]
    any_, begun = f"{name}_any", f"{name}_1"
    opening = f"{literal(bar)} {begun}" if tag else ""
    rules = {name: any_, any_: _options('""', f"{_all_but(bar + other_than)} {any_}", opening)}
    for place in range(1, len(tag)):
        other = f"{_all_but(bar + tag[place] + other_than)} {any_}"
        further = f"{literal(tag[place])} {name}_{place + 1}" if place + 1 < len(tag) else ""
        rules[f"{name}_{place}"] = _options('""', other, opening, further)
    if not_first:
        rules[name] = _options('""', f"{_all_but(bar + other_than + not_first)} {any_}", opening)
    if least == 1:
        rules[name] = _options(f"{_all_but(bar + other_than)} {any_}", opening)
    return (f"{_all_but(bar + other_than)}{{{least}}}" if least > 1 else '""'), rules


def _options(*bodies: str) -> str:
    return f"({' | '.join(filter(None, bodies))})"


def plain_characters(marker: str) -> Ranges:
    """The characters that are not the first one of ``marker``."""
    return intersection(EVERYTHING, complement(of(marker[0])))


def _parts(marker: str) -> tuple[str, str]:
    bar, word = marker[0], marker[1:-1]
    if len(marker) < 3 or marker[-1] != bar or bar in word:
        raise ValueError(f"{marker!r} is no word between two equal bars")
    return bar, word


def _not_the_word(bar: str, word: str, other_than: str) -> str:
    """Any text without a bar that is not ``word``: it ends early, or goes another way, or goes on."""
    plain = _all_but(bar + other_than)
    body = f"{plain}+"
    for place in reversed(range(len(word))):
        other = f"{_all_but(bar + word[place] + other_than)} {plain}*"
        body = f'("" | {other} | {literal(word[place])} {body})'
    return body


def _all_but(characters: str) -> str:
    return class_of(intersection(EVERYTHING, complement(of(characters))))
