"""Which model ids there are, and what they mean in Triton.

An id is a served name, or ``NAME@VERSION`` for one version of its ensemble. Without configuration the ids are the
ensembles ``chat`` and ``completions``; a bare alias stands for both, ``ALIAS=ENSEMBLE[@VERSION]`` for one ensemble of
either kind. Where Triton's configuration of an ensemble shares its requests among versions, an id without a version is
answered by the one that its conversation falls to.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from heptagram_gateway.errors import ApiError
from heptagram_gateway.sharing import choose
from heptagram_wire.errors import MODEL_NOT_FOUND
from heptagram_wire.tensors import CHAT, COMPLETIONS, pinned

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
_FORM: Final = re.compile(
    rf"(?P<id>{_ID.pattern})(=(?P<ensemble>[A-Za-z0-9_.-]{{1,128}})(@(?P<version>[0-9]{{1,18}}))?)?"
)
_PINNED: Final = re.compile(rf"(?P<id>{_ID.pattern})@(?P<version>[0-9]{{1,18}})")
_SHOWN_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class ServedModel:
    """An id, the ensembles that answer chats and completions, and the version it is pinned to."""

    id: str
    chat: str
    completions: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """What a request runs on: ``id`` as the client wrote it; ``instead``, should that not be ready."""

    id: str
    ensemble: str
    version: str | None = None
    instead: Target | None = None

    @property
    def ways(self) -> tuple[Target, ...]:
        """In this order."""
        return (self,) if self.instead is None else (self, self.instead)

    @property
    def triton_name(self) -> str:
        return self.ensemble if self.version is None else f"{self.ensemble}@{self.version}"


class ModelServer(Protocol):
    """What the front asks Triton about its models."""

    async def versions(self, ensemble: str) -> tuple[str, ...]:
        """The versions that are ready; none for a model that is not.

        Raises:
            ApiError: Triton cannot be reached.
        """

    async def shares(self, ensemble: str) -> Mapping[str, int]:
        """Percents of the requests to an ensemble by version; empty where they are not shared. Raises nothing."""

    async def close(self) -> None: ...


def served_by_default() -> tuple[ServedModel, ...]:
    return ServedModel(CHAT, CHAT, COMPLETIONS), ServedModel(COMPLETIONS, CHAT, COMPLETIONS)


def parse_served(text: str) -> ServedModel:
    """Read ``NAME`` or ``NAME=ENSEMBLE[@VERSION]``.

    Raises:
        ValueError: it is neither.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r}: write NAME or NAME=ENSEMBLE[@VERSION]")
    ensemble = match["ensemble"]
    return ServedModel(match["id"], ensemble or CHAT, ensemble or COMPLETIONS, match["version"])


class Models:
    """The ids of this front; ``server`` is asked for shares, and where a version is named or models are listed."""

    def __init__(self, served: tuple[ServedModel, ...], server: ModelServer) -> None:
        self._served = {model.id: model for model in served}
        self._default = served[0]
        self._server = server
        self._created = int(time.time())

    async def find_chat(self, id: object, conversation: str) -> Target:
        """The ensemble for the ``model`` of a chat; the first served one where it is absent.

        Args:
            id: what the request names.
            conversation: from :func:`heptagram_gateway.sharing.conversation_of`.

        Raises:
            ApiError: 404 no such model or version, 400 not a string, 503 Triton cannot be asked.
        """
        found, version = self._read(id)
        return await self._chosen(Target(_shown_id(id, found), found.chat, version), conversation)

    async def find_completions(self, id: object, conversation: str) -> Target:
        """The same for a completion."""
        found, version = self._read(id)
        return await self._chosen(Target(_shown_id(id, found), found.completions, version), conversation)

    async def cards(self) -> list[dict[str, Any]]:
        """OpenAI's model objects of those that are ready, with their ready ``versions``."""
        cards = [await self._card(model.id, model, model.version) for model in self._served.values()]
        return [card for card in cards if card["versions"]]

    async def card(self, id: str) -> dict[str, Any]:
        """One of them.

        Raises:
            ApiError: 404 when it does not exist or is not ready.
        """
        found, version = self._read(id)
        card = await self._card(id, found, version)
        if not card["versions"]:
            raise self._absent(id)
        return card

    async def reason_not_ready(self) -> str | None:
        """Why the first served model cannot answer chats now; ``None`` when it can."""
        try:
            target = await self._checked(Target(self._default.id, self._default.chat, self._default.version))
            ready = await self._server.versions(target.ensemble)
        except ApiError as error:
            return error.message
        return None if ready else f"the model {target.ensemble!r} is not ready"

    def _read(self, id: object) -> tuple[ServedModel, str | None]:
        if id is None:
            return self._default, self._default.version
        if not isinstance(id, str):
            raise ApiError(400, "must be a string", "invalid_type", "model")
        if id in self._served:
            return self._served[id], self._served[id].version
        match = _PINNED.fullmatch(id)
        found = self._served.get(match["id"]) if match else None
        if match is None or found is None or found.version not in (None, match["version"]):
            raise self._absent(id)
        return found, match["version"]

    async def _chosen(self, target: Target, conversation: str) -> Target:
        """The version that a conversation falls to; a named one as it is."""
        if target.version is not None:
            return await self._checked(target)
        shares = await self._server.shares(target.ensemble)
        if not shares:
            return target
        version = choose(shares, conversation)
        return Target(target.id, pinned(target.ensemble, version), version, instead=target)

    async def _checked(self, target: Target) -> Target:
        """A version is answered by the ensemble that is pinned to it, where there is one: a promotion passes it by."""
        if target.version is None:
            return target
        found = await self._answering(target.ensemble, target.version)
        if found is None:
            versions = await self._server.versions(target.ensemble)
            raise self._absent(target.id, f"versions that are ready: {', '.join(versions) or 'none'}")
        return replace(target, ensemble=found)

    async def _answering(self, ensemble: str, version: str) -> str | None:
        for name in (pinned(ensemble, version), ensemble):
            if version in await self._server.versions(name):
                return name
        return None

    async def _card(self, id: str, model: ServedModel, version: str | None) -> dict[str, Any]:
        ensemble = model.completions if model.id == COMPLETIONS else model.chat
        shares: Mapping[str, int] = {}
        if version is None:
            shares = await self._server.shares(ensemble)
            versions = list(await self._server.versions(ensemble))
        else:
            versions = [version] if await self._answering(ensemble, version) else []
        card = {"id": id, "object": "model", "created": self._created, "owned_by": "heptagram", "versions": versions}
        return card | ({"shares": shares} if shares else {})

    def _absent(self, id: str, instead: str | None = None) -> ApiError:
        there = instead or f"this server has {', '.join(self._served)}"
        shown = id if len(id) <= _SHOWN_CHARACTERS else f"{id[:_SHOWN_CHARACTERS]}..."
        return ApiError(404, f"there is no model {shown!r}; {there}", MODEL_NOT_FOUND, "model")


def _shown_id(id: object, found: ServedModel) -> str:
    return id if isinstance(id, str) else found.id
