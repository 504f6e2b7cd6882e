"""Selecting a device and reporting its memory, with stand-ins for torch_npu and ``torch.npu``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

MODULE = "heptagram_kernels.npu"


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    notes: list[Any] = []
    runtime = SimpleNamespace(
        notes=notes,
        device_count=lambda: 2,
        set_device=lambda index: notes.append(index),
        set_compile_mode=lambda **mode: notes.append(mode),
        synchronize=lambda: notes.append("synchronized"),
        mem_get_info=lambda: (60, 64),
        memory_allocated=lambda: 1,
        memory_reserved=lambda: 3,
    )
    monkeypatch.setitem(sys.modules, "torch_npu", ModuleType("torch_npu"))
    monkeypatch.setattr(torch, "npu", runtime, raising=False)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield import_module(MODULE)
    sys.modules.pop(MODULE, None)


def test_a_device_is_selected_with_operators_that_come_compiled(npu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "device", lambda kind, index: (kind, index))  # this torch knows no npu
    assert npu.select(1, {}) == ("npu", 1)
    assert npu.runtime().notes == [1, {"jit_compile": False}]


def test_a_device_that_is_not_there_or_cannot_capture_is_refused_before_anything_is_set(npu: Any) -> None:
    with pytest.raises(ValueError, match="npu:2: this process sees 2 NPUs"):
        npu.select(2, {})
    with pytest.raises(ValueError, match=r"ASCEND_LAUNCH_BLOCKING=1 .*unset it"):
        npu.select(0, {"ASCEND_LAUNCH_BLOCKING": "1"})
    assert not npu.runtime().notes


def test_memory_is_reported_after_what_was_launched(npu: Any) -> None:
    assert npu.memory_report() == npu.MemoryReport(allocated=1, reserved=3, free=60, total=64)
    assert npu.runtime().notes == ["synchronized"]


def test_without_torch_npu_the_module_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(ImportError, match=r"device npu: .*install heptagram\[npu\] and CANN"):
        import_module(MODULE)
