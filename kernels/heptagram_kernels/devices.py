"""Devices by name: the one place where the step's operations, sampling and graphs of a device are chosen.

Each module is imported when it is used. The operations come from :data:`heptagram_kernels.ops.IMPLEMENTATIONS`, the
graphs from :data:`heptagram_kernels.graph.GRAPHS`, under the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final, Protocol, cast

import torch

from heptagram_kernels.graph import Graph, load_graph
from heptagram_kernels.ops import Ops, load_ops
from heptagram_kernels.sampling import TokenLogprobs, VerifySampled

DEVICES: Final[dict[str, str]] = {
    "cpu": "heptagram_kernels.cpu",
    "cuda": "heptagram_kernels.cuda",
    "npu": "heptagram_kernels.npu",
}


class DeviceModule(Protocol):
    """What a device's module offers."""

    @property
    def verify_sampled(self) -> VerifySampled: ...

    @property
    def token_logprobs(self) -> TokenLogprobs: ...

    def select(self, index: int) -> torch.device:
        """Make one device the process's own. Once, before anything is put there.

        Raises:
            ValueError: there is none.
        """


@dataclass(frozen=True, slots=True)
class Device:
    """All that the step needs of a device."""

    name: str
    ops: Ops
    verify_sampled: VerifySampled
    token_logprobs: TokenLogprobs
    graph: Callable[[], Graph]
    select: Callable[[int], torch.device]


def load_device(name: str) -> Device:
    """The operations of a device.

    Raises:
        ValueError: there is no such device here; the message names those that are.
        ImportError: what drives it is not installed.
    """
    if name not in DEVICES:
        raise ValueError(f"device {name!r}: not supported; choose one of {', '.join(sorted(DEVICES))}")
    module = cast(DeviceModule, import_module(DEVICES[name]))
    return Device(name, load_ops(name), module.verify_sampled, module.token_logprobs, load_graph(name), module.select)
