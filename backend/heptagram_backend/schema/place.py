"""Where in a schema we are, and how a refusal names it."""

from __future__ import annotations

from dataclasses import dataclass

from heptagram_backend.errors import RequestError
from heptagram_wire import errors as codes

_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A location inside the schema that the request field ``param`` holds."""

    param: str
    keys: tuple[str, ...] = ()

    def __truediv__(self, key: str | int) -> Place:
        return Place(self.param, (*self.keys, str(key)))

    @property
    def pointer(self) -> str:
        """JSON Pointer as a URI fragment, cut when it is very long."""
        text = "#" + "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in self.keys)
        return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."

    def refuse(self, message: str, *, code: str = codes.UNSUPPORTED_SCHEMA) -> RequestError:
        """An error to raise: what is wrong here and what to write instead."""
        return RequestError(f"at {self.pointer}: {message}", code=code, param=self.param)

    def invalid(self, message: str) -> RequestError:
        """An error to raise: this is no JSON Schema at all."""
        return self.refuse(message, code=codes.INVALID_VALUE)
