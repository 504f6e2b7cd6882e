"""What happens to fields that nobody knows."""

from __future__ import annotations

import logging
from typing import Final

from heptagram_gateway.errors import ApiError
from heptagram_gateway.fields import Sorted
from heptagram_wire.errors import UNKNOWN_FIELD

_LOG = logging.getLogger(__name__)
_REMEMBERED: Final = 256  # a client that invents names must not fill memory or the log


class UnknownFields:
    """``refuse``: a 400 names the first one. Otherwise they are dropped, and each is logged once."""

    def __init__(self, *, refuse: bool) -> None:
        self._refuse = refuse
        self._seen: set[str] = set()

    def settle(self, fields: Sorted) -> None:
        """Raise or log, as configured."""
        if fields.unknown and self._refuse:
            place = fields.unknown[0]
            raise ApiError(400, f"there is no field {place!r}; leave it out", UNKNOWN_FIELD, place)
        for place in fields.unknown:
            if place not in self._seen and len(self._seen) < _REMEMBERED:
                self._seen.add(place)
                _LOG.warning("request field %r is not known and was ignored; this is said once", place)
