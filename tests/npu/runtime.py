"""A stand-in for ``torch.npu`` that runs nothing on a device and notes what it is asked, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class Noted:
    """``records``: keywords of the operators that a capture with updates would find."""

    records: Sequence[Mapping[str, Any]] = ()
    notes: list[Any] = field(default_factory=list)
    failure: str | None = None

    def NPUGraph(self) -> Any:  # noqa: N802
        return SimpleNamespace(
            graph_dispatch_mode=SimpleNamespace(
                graph_dispatch_records=[SimpleNamespace(kwargs=kwargs) for kwargs in self.records]
            ),
            update=lambda cpu_update_input: self.notes.append(("update", cpu_update_input)),
            replay=lambda: self.notes.append("replay"),
        )

    def current_device(self) -> int:
        return 0

    def graph_pool_handle(self) -> str:
        return "a pool"

    def current_stream(self) -> Any:
        return self._stream("current")

    def Stream(self) -> Any:  # noqa: N802
        return self._stream("side")

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        self.notes.append(f"on {stream.name}")
        yield
        self.notes.append(f"off {stream.name}")

    @contextmanager
    def graph(self, graph: Any, *, pool: Any, auto_dispatch_capture: bool) -> Iterator[None]:
        self.notes.append(("capture", pool, auto_dispatch_capture))
        yield
        if self.failure is not None:
            raise RuntimeError(self.failure)
        self.notes.append("captured")

    def _stream(self, name: str) -> Any:
        return SimpleNamespace(
            name=name,
            wait_stream=lambda other: self.notes.append(f"{name} waits for {other.name}"),
            synchronize=lambda: self.notes.append(f"{name} synchronized"),
        )
