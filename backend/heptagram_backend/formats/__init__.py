"""Model families by name. Each is one class, loaded when a release asks for it."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats.base import AnswerBounds, Format

FORMATS: dict[str, str] = {
    "chatml_dsml": "heptagram_backend.formats.chatml_dsml:ChatMLDsml",
    "chatml_json": "heptagram_backend.formats.chatml_json:ChatMLJson",
    "deepseek_v4": "heptagram_backend.formats.deepseek_v4:DeepSeekV4",
    "deepseek_v4_preview": "heptagram_backend.formats.deepseek_v4:DeepSeekV4Preview",
    "deepseek_v4_1": "heptagram_backend.formats.deepseek_v4_1:DeepSeekV41",
    "llama3_json": "heptagram_backend.formats.llama3_json:Llama3Json",
    "qwen3": "heptagram_backend.formats.qwen3:Qwen3",
    "qwen3_xml": "heptagram_backend.formats.qwen3_xml:Qwen3Xml",
}


def load_format(name: str, bounds: AnswerBounds | None = None) -> Format:
    """Make the format ``name``; ``bounds`` hold for what it constrains.

    Raises:
        ReleaseError: no such format.
    """
    if name not in FORMATS:
        raise ReleaseError(f"format: there is no {name!r}; known are {', '.join(sorted(FORMATS))}")
    module, _, attribute = FORMATS[name].partition(":")
    return cast(Format, getattr(import_module(module), attribute)(bounds))
