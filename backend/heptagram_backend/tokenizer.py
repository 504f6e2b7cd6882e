"""A checkpoint's tokenizer and chat template, by the ``tokenizers`` library and transformers' template renderer.

No torch. Control tokens in the caller's text stay plain text: :meth:`CheckpointTokenizer.guarded` breaks them with a
mark, the template is applied, and :meth:`CheckpointTokenizer.encode` takes the marks out again where it cuts the text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from jinja2 import TemplateError
from tokenizers import Tokenizer

from heptagram_backend.errors import ReleaseError, RequestError
from heptagram_backend.vocabulary import token_texts
from heptagram_wire import errors as codes

# A noncharacter: it is in no text by the standard, and is escaped by doubling where it is all the same.
_MARK: Final = "\U0010fffe"
_SPECIALS: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class CheckpointTokenizer:
    """Reads ``tokenizer.json``, ``tokenizer_config.json``, ``generation_config.json`` and the chat template.

    Thread-safe once made.

    Raises:
        ReleaseError: a file is missing or not what it should be; the message names it.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        source = self._read("tokenizer.json")
        config = self._read("tokenizer_config.json", default={})
        self._vocabulary = source
        self._tokenizer = self._made_of(source)
        self._control = {token["id"]: str(token["content"]) for token in source.get("added_tokens", [])}
        self._silent = frozenset(token["id"] for token in source.get("added_tokens", []) if token["special"])
        self._specials = {name: _content(config[name]) for name in _SPECIALS if config.get(name) is not None}
        self._template = self._chat_template(config)
        texts = sorted(self._control.values(), key=len, reverse=True)
        self._any_control = re.compile("|".join(map(re.escape, texts)) or r"(?!)")

    @property
    def size(self) -> int:
        """Ids ``0 .. size - 1`` are the tokens, added ones included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    @property
    def control_tokens(self) -> Mapping[int, str]:
        """Every added token by its id, whether or not it is shown in decoded text."""
        return self._control

    @property
    def guard(self) -> str:
        """See :class:`heptagram_backend.formats.base.ChatTokenizer`."""
        return _MARK

    def guarded(self, text: str) -> str:
        """Break every control token in ``text`` with a mark behind its first character."""
        return self._any_control.sub(lambda match: match[0][0] + _MARK + match[0][1:], text.replace(_MARK, _MARK * 2))

    def token_id(self, text: str) -> int | None:
        """The id of the control token ``text``; ``None`` when there is no such control token."""
        return next((token for token, control in self._control.items() if control == text), None)

    def render(self, messages: Sequence[Mapping[str, Any]], **template_kwargs: Any) -> str:
        """Apply the chat template, ending with the header of the assistant's turn.

        Raises:
            RequestError: the template refuses the conversation.
        """
        if self._template is None:
            raise ReleaseError(f"checkpoint: {self._checkpoint} has no chat template; add chat_template.jinja")
        try:
            rendered, _ = self._renderer(
                conversations=[list(messages)],
                chat_template=self._template,
                add_generation_prompt=True,
                **{**self._specials, **template_kwargs},
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise RequestError(
                f"the model's chat template refuses this conversation: {error}",
                code=codes.INVALID_VALUE,
                param="messages",
            ) from error
        return str(rendered[0])

    def encode(self, text: str) -> list[int]:
        """Canonical token ids of ``text``, no tokens added around it; guarded control tokens become plain text."""
        if _MARK not in text:
            return list(self._tokenizer.encode(text, add_special_tokens=False).ids)
        ids: list[int] = []
        start = 0
        for match in self._any_control.finditer(text):
            ids += self._encode_plain(text[start : match.start()])
            ids += self._tokenizer.encode(match[0], add_special_tokens=False).ids
            start = match.end()
        return ids + self._encode_plain(text[start:])

    def encode_raw(self, text: str) -> list[int]:
        """Token ids of a raw prompt: control tokens in it count as such, and what the tokenizer puts around a text
        by itself (a first token, for most) is there."""
        return list(self._tokenizer.encode(text).ids)

    def token_bytes(self, markers: Collection[str] | None = None) -> list[bytes | None]:
        """The text of each token id as bytes; ``None`` for control tokens and for ids without a token.

        Args:
            markers: the only added tokens that have a text; ``None`` for all that are not declared special.

        Raises:
            ReleaseError: the vocabulary is of a kind whose bytes are not known.
        """
        silent = self._silent
        if markers is not None:
            silent = frozenset(token for token, text in self._control.items() if text not in markers)
        return token_texts(self._vocabulary, size=self.size, silent=silent)

    def warm_up(self) -> None:
        """Load now what the first prompt would wait for; an engine, which only cuts text, is spared it."""
        _ = self._plain, self._renderer

    @cached_property
    def _renderer(self) -> Callable[..., Any]:
        from transformers.utils.chat_template_utils import render_jinja_template

        render: Callable[..., Any] = render_jinja_template
        return render

    @cached_property
    def _plain(self) -> Tokenizer:
        """Knows no control tokens. Only prompts need it."""
        return self._made_of({**self._vocabulary, "added_tokens": []})

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end an answer.

        Raises:
            ReleaseError: none is declared.
        """
        for name in ("generation_config.json", "config.json"):
            declared = self._read(name, default={}).get("eos_token_id")
            if declared is not None:
                return tuple(declared) if isinstance(declared, list) else (int(declared),)
        token = self._tokenizer.token_to_id(self._specials.get("eos_token", ""))
        if token is None:
            raise ReleaseError(f"checkpoint: {self._checkpoint} declares no eos_token_id; set it in config.json")
        return (int(token),)

    @cached_property
    def vocabulary_hash(self) -> str:
        """Identity of the vocabulary: every token, its id, and which ones are control tokens."""
        entries = sorted((token, text) for text, token in self._tokenizer.get_vocab(with_added_tokens=True).items())
        text = json.dumps([entries, sorted(self._control)], separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def _made_of(self, source: dict[str, Any]) -> Tokenizer:
        try:
            return Tokenizer.from_str(json.dumps(source))
        except Exception as error:  # the library raises nothing more special
            raise ReleaseError(
                f"checkpoint: {self._checkpoint / 'tokenizer.json'} is no tokenizer ({error})"
            ) from error

    def _encode_plain(self, text: str) -> list[int]:
        # Doubled marks are the caller's own, single ones are ours.
        text = re.sub(f"{_MARK}({_MARK}?)", r"\1", text)
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    def _chat_template(self, config: Mapping[str, Any]) -> str | None:
        path = self._checkpoint / "chat_template.jinja"
        if path.is_file():
            return path.read_text(encoding="utf-8")
        declared = config.get("chat_template")
        if isinstance(declared, list):
            declared = {entry["name"]: entry["template"] for entry in declared}.get("default")
        return declared if isinstance(declared, str) else None

    def _read(self, name: str, *, default: dict[str, Any] | None = None) -> dict[str, Any]:
        path = self._checkpoint / name
        if default is not None and not path.is_file():
            return default
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ReleaseError(f"checkpoint: {path} cannot be read ({error})") from error
        if not isinstance(data, dict):
            raise ReleaseError(f"checkpoint: {path} is no JSON object")
        return data


def _content(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)
