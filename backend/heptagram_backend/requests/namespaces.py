"""Names of tools, qualified by a namespace: ``namespace::name``.

A namespace stands on the tool (or past call, or choice) or on its ``function``, as a string or as
``{"name": ..., "description": ...}``; the name may also be qualified by itself. Whatever is said twice must agree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from heptagram_backend.errors import RequestError
from heptagram_backend.requests.fields import Fields, invalid, shown, wrong_type
from heptagram_backend.requests.limits import RequestLimits
from heptagram_wire import errors as codes

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]+(?::[A-Za-z0-9_.-]+)*")
_MARK: Final = "::"


@dataclass(frozen=True, slots=True)
class QualifiedName:
    """``text`` is ``namespace::name``, or the name alone; ``description`` is the namespace's."""

    text: str
    description: str | None = None


def read_name(function: Fields, limits: RequestLimits, *owners: Fields) -> QualifiedName:
    """The name of a function, qualified.

    Args:
        function: has ``name`` and maybe ``namespace``.
        limits: ``name`` bounds either part of a name.
        owners: other objects that may have ``namespace``.

    Raises:
        RequestError: a part is empty or has other characters than letters, digits and ``_ - . :``, or there are more
            than two, or two namespaces are given that differ.
    """
    text = function.required_text("name", longest=2 * limits.name + len(_MARK))
    prefix, mark, bare = text.rpartition(_MARK)
    path = function.at("name")
    name = _plain(bare, path, limits, "name" if mark else "tool's name")
    found = [_namespace(owner, limits) for owner in (*owners, function)]
    said = [each for each in found if each is not None]
    if mark:
        said.insert(0, (path, _plain(prefix, path, limits, "namespace"), None))
    for place, namespace, _ in said:
        if namespace != said[0][1]:
            raise invalid(place, f"the namespace {shown(namespace)} is not {shown(said[0][1])}, which is given as well")
    descriptions = dict.fromkeys(description for _, _, description in said if description)
    if len(descriptions) > 1:
        raise invalid(said[-1][0], "the namespace is described twice and differently; describe it once")
    return QualifiedName(f"{said[0][1]}{_MARK}{name}" if said else name, next(iter(descriptions), None))


def _namespace(owner: Fields, limits: RequestLimits) -> tuple[str, str, str | None] | None:
    """Its place, its name and its description."""
    value = owner.get("namespace")
    path = owner.at("namespace")
    if value is None:
        return None
    if isinstance(value, str):
        return path, _plain(value, path, limits, "namespace"), None
    if not isinstance(value, dict):
        raise wrong_type(path, "a string or an object with a name", value)
    fields = Fields(value, path)
    name = _plain(fields.required_text("name"), fields.at("name"), limits, "namespace")
    description = fields.text("description")
    fields.refuse_unknown()
    return path, name, description


def _plain(text: str, path: str, limits: RequestLimits, what: str) -> str:
    if not text:
        raise invalid(path, f"the {what} is empty; write namespace::name or a name alone")
    if _MARK in text:
        raise invalid(path, f"{shown(text)} holds `::`, which parts one namespace from one name")
    if len(text) > limits.name:
        raise RequestError(
            f"the {what} is longer than {limits.name} characters; shorten it", code=codes.TOO_LARGE, param=path
        )
    if not _PLAIN.fullmatch(text):
        raise invalid(path, f"{shown(text)} may hold only letters, digits and _ - . and : between them")
    return text
