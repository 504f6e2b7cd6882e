"""Where in a schema we are, and how a refusal names it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from heptagram_backend.errors import RequestError
from heptagram_wire import errors as codes

Unenforced = Literal["refuse", "validate"]
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A location inside the schema that the request field ``param`` holds.

    ``unenforced`` says what becomes of a keyword that the grammar cannot hold: it is refused, or left to the check of
    the finished value.
    """

    param: str
    keys: tuple[str, ...] = ()
    unenforced: Unenforced = "refuse"

    def __truediv__(self, key: str | int) -> Place:
        return self.at((*self.keys, str(key)))

    def at(self, keys: tuple[str, ...]) -> Place:
        """Another place in the same schema."""
        return replace(self, keys=keys)

    @property
    def pointer(self) -> str:
        """JSON Pointer as a URI fragment, cut when it is very long."""
        text = "#" + "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in self.keys)
        return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."

    def refuse(self, message: str, *, code: str = codes.UNSUPPORTED_SCHEMA) -> RequestError:
        """An error to raise: what is wrong here and what to write instead."""
        return RequestError(f"at {self.pointer}: {message}", code=code, param=self.param)

    def leave(self, message: str) -> None:
        """Leave what the grammar cannot hold here to the check of the finished value.

        Raises:
            RequestError: the request wants it refused.
        """
        if self.unenforced == "refuse":
            raise self.refuse(message)

    def invalid(self, message: str) -> RequestError:
        """An error to raise: this is no JSON Schema at all."""
        return self.refuse(message, code=codes.INVALID_VALUE)
