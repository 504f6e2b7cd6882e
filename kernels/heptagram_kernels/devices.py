"""Devices by name; each module is imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Final, Protocol, cast

from heptagram_kernels.bitmask import VerifyGreedy
from heptagram_kernels.sampling import TokenLogprobs, VerifySampled

DEVICES: Final[dict[str, str]] = {"cpu": "heptagram_kernels.cpu"}


class Device(Protocol):
    """What a device module offers."""

    @property
    def verify_greedy(self) -> VerifyGreedy: ...

    @property
    def verify_sampled(self) -> VerifySampled: ...

    @property
    def token_logprobs(self) -> TokenLogprobs: ...


def load_device(name: str) -> Device:
    """The operations of a device.

    Raises:
        ValueError: there is no such device here; the message names those that are.
    """
    if name not in DEVICES:
        raise ValueError(f"device {name!r}: not supported; choose one of {', '.join(sorted(DEVICES))}")
    return cast(Device, import_module(DEVICES[name]))
