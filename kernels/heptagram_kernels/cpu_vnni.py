"""Products of coded weights on processors with AVX-512 VNNI, compiled when they are first needed, by LLVM itself.

No compiler is needed on the machine: llvmlite, which is imported here only, brings LLVM. Threads are those of torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from heptagram_kernels.codes import GROUP, Codes
from heptagram_kernels.cpu_vnni_ir import CHANNELS, ROWS, module

_KINDS: Final = {torch.bfloat16: "bfloat", torch.float32: "float"}
_FEATURES: Final = ("avx512f", "avx512bw", "avx512vl", "avx512vnni")
_OPENMP: Final = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_WORTH_A_TEAM: Final = 1 << 21
"""Multiplications below which one thread is done before a team has begun."""
_Arguments: Final = ctypes.c_int64 * 11


def fault() -> str | None:
    """Why this machine cannot multiply so; None where it can."""
    try:
        from llvmlite import binding
    except ImportError as error:
        return f"llvmlite does not import ({error}); pip install 'heptagram[quantized]'"
    has = binding.get_host_cpu_features()
    if missing := [name for name in _FEATURES if not has.get(name)]:
        return f"the processor has no {missing[-1]}"
    if _openmp() is None:
        return "this build of torch has no OpenMP"
    return None


class CodedProduct:
    """Rows times one coded weight; each row, or each 32 numbers of it, is quantized by its own largest value.

    Args:
        weight: K must be a multiple of 32.
        bias: [N].
    """

    def __init__(self, weight: Codes, bias: Tensor | None = None) -> None:
        self._channels, self._inputs = weight.codes.shape
        if self._inputs % GROUP:
            raise ValueError(f"weight: {self._inputs} inputs; must be a multiple of {GROUP}")
        more = -self._channels % CHANNELS
        self._bits, self._grouped = weight.bits, weight.grouped
        self._width = self._channels + more
        codes, *factors = (
            pad(part, (0, 0, 0, more)) for part in (weight.codes, weight.scales, weight.minimums) if part is not None
        )
        self._codes = _bytes(codes) if weight.bits == 8 else _nibbles(codes)
        self._factors = _halves(factors) if weight.grouped else factors[0].contiguous()
        self._bias = torch.zeros(self._width) if bias is None else pad(bias.float(), (0, more)).contiguous()

    def __call__(self, rows: Tensor, *, epilogue: str = "none", other: Tensor | None = None) -> Tensor:
        """``rows`` [..., K], bfloat16 or float32, to [..., N] of the same type.

        Args:
            epilogue: ``none``; ``silu``; or ``times``, element by element ``other`` [..., N].
        """
        shape = rows.shape[:-1]
        rows = _whole(rows.reshape(-1, self._inputs), ROWS, self._inputs)
        total = rows.shape[0]
        lines = total * self._inputs // GROUP if self._grouped else total
        room = torch.empty(total * self._inputs + 8 * lines, dtype=torch.uint8)  # codes, scales, sums of codes
        output = rows.new_empty((total, self._width))
        beside = 0
        if other is not None:
            other = _whole(other.reshape(-1, self._channels), ROWS, self._width)
            beside = other.data_ptr()
        codes = room.data_ptr()
        scales = codes + total * self._inputs
        arguments = _Arguments(
            codes,
            scales,
            scales + 4 * lines,
            self._codes.data_ptr(),
            self._factors.data_ptr(),
            self._bias.data_ptr(),
            beside,
            output.data_ptr(),
            total,
            self._inputs,
            self._width // CHANNELS,
        )
        team = torch.get_num_threads() if total * self._inputs * self._width >= _WORTH_A_TEAM else 1
        multiply = _compiled(self._bits, self._grouped, _KINDS[rows.dtype], epilogue)
        multiply(rows.data_ptr(), lines, rows.numel() // lines, arguments, team)
        return output[: shape.numel(), : self._channels].view(*shape, self._channels)


def _whole(rows: Tensor, multiple: int, width: int) -> Tensor:
    """``rows``, contiguous, with zeros up to a multiple of rows and up to ``width``."""
    below, beside = -rows.shape[0] % multiple, width - rows.shape[1]
    return pad(rows, (0, beside, 0, below)) if below or beside else rows.contiguous()


def _bytes(codes: Tensor) -> Tensor:
    """int8 [N, K] to [N / 16, K / 4, 16, 4], 128 higher."""
    high = (codes.to(torch.int16) + 128).to(torch.uint8)
    return high.view(-1, CHANNELS, codes.shape[1] // 4, 4).transpose(1, 2).contiguous()


def _nibbles(codes: Tensor) -> Tensor:
    """0 to 15 [N, K] to [N / 16, K / 8, 16, 4]: the first four of each eight in the low half of a byte."""
    eights = codes.to(torch.uint8).view(-1, CHANNELS, codes.shape[1] // 8, 2, 4).permute(3, 0, 2, 1, 4)
    return (eights[0] | (eights[1] << 4)).contiguous()


def _halves(factors: Sequence[Tensor]) -> Tensor:
    """F of [N, G] to halves [N / 16, G, F, 16]."""
    both = torch.stack(list(factors)).half()
    return both.view(len(both), -1, CHANNELS, both.shape[2]).permute(1, 3, 0, 2).contiguous()


@cache
def _compiled(bits: int, grouped: bool, kind: str, epilogue: str) -> Any:
    """``linear`` of :func:`cpu_vnni_ir.module` as a C function. It and its engine stay for the life of the process."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    runtime = _openmp()
    for name in _OPENMP:
        binding.add_symbol(name, ctypes.cast(getattr(runtime, name), ctypes.c_void_p).value)
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3, jit=True
    )
    code = binding.parse_assembly(module(bits=bits, grouped=grouped, kind=kind, epilogue=epilogue))
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(code, builder)
    engine = binding.create_mcjit_compiler(code, machine)
    engine.finalize_object()
    kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32)
    function = ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address("linear"))
    function.engine = engine  # type: ignore[attr-defined]
    return function


@cache
def _openmp() -> ctypes.CDLL | None:
    """The OpenMP runtime that torch has loaded: a second one would have threads of its own."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    files = dict.fromkeys(line.split(maxsplit=5)[5] for line in maps.splitlines() if "omp" in line.rpartition("/")[2])
    for file in files:
        library = ctypes.CDLL(file)
        if all(hasattr(library, name) for name in _OPENMP):
            return library
    return None
