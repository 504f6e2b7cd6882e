"""Reads one JSON object field by field. ``null`` counts as absent; what nobody asked for is an unknown field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any

from heptagram_backend.errors import RequestError
from heptagram_wire import errors as codes

_SIMPLE = re.compile(r"[A-Za-z_$][\w$-]{0,63}", re.ASCII)


class Fields:
    """``path`` is the OpenAI-style place of the object, empty at the top. Every method raises RequestError."""

    def __init__(self, data: Any, path: str = "") -> None:
        if not isinstance(data, dict):
            raise wrong_type(path, "an object", data)
        self._data: Mapping[str, Any] = data
        self._path = path
        self._known: set[str] = set()

    @property
    def data(self) -> Mapping[str, Any]:
        """The object as it is."""
        return self._data

    def at(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def get(self, key: str) -> Any:
        """The value as it is; ``None`` when it is absent."""
        self._known.add(key)
        return self._data.get(key)

    def require(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise RequestError("this field is required", code=codes.MISSING, param=self.at(key))
        return value

    def text(self, key: str, *, longest: int | None = None) -> str | None:
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise wrong_type(self.at(key), "a string", value)
        if longest is not None and len(value) > longest:
            raise RequestError(
                f"longer than {longest} characters; shorten it", code=codes.TOO_LARGE, param=self.at(key)
            )
        return value

    def required_text(self, key: str, *, longest: int | None = None) -> str:
        self.require(key)
        value = self.text(key, longest=longest)
        assert value is not None
        return value

    def choice(self, key: str, allowed: Iterable[str]) -> str | None:
        value = self.text(key)
        names = list(allowed)
        if value is not None and value not in names:
            near = get_close_matches(value[:64], names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise invalid(self.at(key), f"{shown(value)} is not one of {', '.join(names)}{hint}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise wrong_type(self.at(key), "true or false", value)
        return value

    def whole(self, key: str, low: int, high: int) -> int | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong_type(self.at(key), "a whole number", value)
        if not low <= value <= high:
            raise invalid(self.at(key), f"must be from {low} to {high}")
        return value

    def number(self, key: str, low: float, high: float) -> float | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_type(self.at(key), "a number", value)
        if not low <= value <= high:
            raise invalid(self.at(key), f"must be from {low:g} to {high:g}")
        return float(value)

    def list(self, key: str, *, longest: int, code: str = codes.TOO_LARGE) -> list[Any] | None:
        """The entries of a list, or of any other iterable but text and mappings."""
        value = self.get(key)
        if value is None:
            return None
        if not is_list(value):
            raise wrong_type(self.at(key), "a list", value)
        entries = [*islice(value, longest + 1)]
        if len(entries) > longest:
            raise RequestError(f"more than {longest} entries; send fewer", code=code, param=self.at(key))
        return entries

    def nested(self, key: str) -> Fields | None:
        value = self.get(key)
        return None if value is None else Fields(value, self.at(key))

    def refuse_unknown(self) -> None:
        """Call it when every known field has been asked for."""
        for key in self._data:
            if key not in self._known:
                near = get_close_matches(key[:64], self._known, n=1)
                hint = f"; did you mean `{near[0]}`?" if near else "; leave it out"
                param = self.at(key) if _SIMPLE.fullmatch(key) else self._path or None
                raise RequestError(f"there is no field {shown(key)} here{hint}", code=codes.UNKNOWN_FIELD, param=param)


def is_list(value: Any) -> bool:
    """Whether ``value`` counts as a list. From JSON only lists do; callers in Python may have other iterables."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping)


def shown(text: str) -> str:
    """Foreign text, quoted and cut, for a message."""
    return json.dumps(text if len(text) <= 64 else text[:64] + "...", ensure_ascii=False)


def wrong_type(path: str, expected: str, value: Any) -> RequestError:
    found = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
        type(None): "null",
    }.get(type(value), "something else")
    return RequestError(f"must be {expected}, not {found}", code=codes.INVALID_TYPE, param=path or None)


def invalid(path: str, message: str) -> RequestError:
    return RequestError(message, code=codes.INVALID_VALUE, param=path)


def unsupported(path: str, message: str) -> RequestError:
    return RequestError(message, code=codes.UNSUPPORTED, param=path)
