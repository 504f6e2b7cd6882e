"""Calls as a model of each format writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from heptagram_backend.formats.deepseek_v4.markup import V4, V4_1, Dsml
from heptagram_backend.formats.hermes.markup import call_text

Call = tuple[str, Mapping[str, Any]]
DSML: Final = {"chatml_dsml": V4, "deepseek_v4": V4, "deepseek_v4_1": V4_1}


def _hermes(calls: Sequence[Call]) -> str:
    return "\n".join(call_text(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in calls)


def _dsml(dsml: Dsml) -> Callable[[Sequence[Call]], str]:
    def parameter(name: str, value: Any) -> str:
        raw = isinstance(value, str)
        return dsml.parameter_text(name, value if raw else json.dumps(value, ensure_ascii=False), string=raw)

    def write(calls: Sequence[Call]) -> str:
        return dsml.block_text(
            dsml.invoke_text(name, [parameter(*each) for each in arguments.items()]) for name, arguments in calls
        )

    return write


def _xml(calls: Sequence[Call]) -> str:
    def one(name: str, arguments: Mapping[str, Any]) -> str:
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
        inner = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in texts.items())
        return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"

    return "\n".join(one(*each) for each in calls)


def _llama(calls: Sequence[Call]) -> str:
    return "; ".join(
        f'{{"name": {json.dumps(name)}, "parameters": {json.dumps(arguments, ensure_ascii=False)}}}'
        for name, arguments in calls
    )


_WRITERS: Final[Mapping[str, Callable[[Sequence[Call]], str]]] = {
    "chatml_json": _hermes,
    **{name: _dsml(dsml) for name, dsml in DSML.items()},
    "qwen3": _hermes,
    "qwen3_xml": _xml,
    "llama3_json": _llama,
}
OPENINGS: Final = {
    **dict.fromkeys(("chatml_json", "qwen3", "qwen3_xml"), "<tool_call>"),
    **{name: dsml.block_begin for name, dsml in DSML.items()},
    "llama3_json": '{"name"',
}
"""What no text beside tools may hold."""
_JOINTS: Final = {**dict.fromkeys(DSML, ""), "llama3_json": "<|python_tag|>"}


def written(format_name: str, *calls: Call, text: str = "") -> str:
    """An answer: ``text``, then the calls."""
    joint = _JOINTS.get(format_name, "\n") if text else ""
    return text + joint + _WRITERS[format_name](calls)
