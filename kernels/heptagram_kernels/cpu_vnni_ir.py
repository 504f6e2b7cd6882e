"""LLVM's text for products of coded weights and coded activations on processors with AVX-512 VNNI.

Sixteen output channels lie beside each other: a vector holds four consecutive codes of each. Eight rows are computed at
a time, every row by the same instructions in the same order, so a row's result depends on nothing but the row.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from heptagram_kernels.llvm_text import Function

CHANNELS: Final = 16
GROUP: Final = 32
"""Codes that share a scale where scales are ``grouped``."""
ROWS: Final = 8
_QUADS: Final = GROUP // 4
_INTS, _FLOATS, _BYTES = f"<{CHANNELS} x i32>", f"<{CHANNELS} x float>", f"<{4 * CHANNELS} x i8>"
_ARGUMENTS: Final = "{ ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, i64 }"
# 2^f for -0.5 <= f <= 0.5: the powers of ln 2 over the factorials, highest first.
_EXP2: Final = (1.540353039338161e-04, 1.333355814642844e-03, 9.618129107628477e-03, 5.550410866482158e-02,
                2.402265069591007e-01, 6.931471805599453e-01, 1.0)  # fmt: skip

_DECLARATIONS: Final = f"""
declare {_INTS} @llvm.x86.avx512.vpdpbusd.512({_INTS}, {_BYTES}, {_BYTES})
declare {_FLOATS} @llvm.fma.v16f32({_FLOATS}, {_FLOATS}, {_FLOATS})
declare {_FLOATS} @llvm.fabs.v16f32({_FLOATS})
declare {_FLOATS} @llvm.maximum.v16f32({_FLOATS}, {_FLOATS})
declare {_FLOATS} @llvm.minimum.v16f32({_FLOATS}, {_FLOATS})
declare float @llvm.vector.reduce.fmaximum.v16f32({_FLOATS})
declare i32 @llvm.vector.reduce.add.v16i32({_INTS})
declare {_FLOATS} @llvm.roundeven.v16f32({_FLOATS})
declare {_INTS} @llvm.fptosi.sat.v16i32.v16f32({_FLOATS})
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
"""


def module(*, bits: int, grouped: bool, kind: str, epilogue: str) -> str:
    """A module whose function ``linear`` multiplies.

    Args:
        bits: of a weight: 8; or 4, ``grouped``, with minimums.
        grouped: scales are those of 32 codes, of weights and of rows; else of a whole channel and row.
        kind: ``bfloat`` or ``float``, of activations and results.
        epilogue: ``none``, ``silu``, or ``times``: the product times other rows, element by element.
    """
    parts = [_DECLARATIONS, _quantize(kind), _product(bits, grouped, kind, epilogue), _WORK, _LINEAR]
    return "\n".join(map(str, parts))


def _call(f: Function, name: str, *values: str) -> str:
    return f.let(f"call {_FLOATS} @llvm.{name}({', '.join(f'{_FLOATS} {value}' for value in values)})")


def _fma(f: Function, left: str, right: str, addend: str) -> str:
    return _call(f, "fma.v16f32", left, right, addend)


def _vector(function: Function, kind: str, pointer: str) -> str:
    """Sixteen activations as floats."""
    loaded = function.load(f"<{CHANNELS} x {kind}>", pointer)
    return loaded if kind == "float" else function.let(f"fpext <{CHANNELS} x {kind}> {loaded} to {_FLOATS}")


def _constant(value: float) -> str:
    """A vector of a float32, written as LLVM reads it: the bits of a double that holds it exactly."""
    exact = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"splat (float 0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X})"


def _quantize(kind: str) -> Function:
    """Lines of numbers to codes in -127 ... 127, a scale a line, and the sum of the line's codes.

    subtle: what is no number must stay none. It makes the scale NaN, or infinite beside codes of 0.
    """
    f = Function("void @quantize(ptr %x, i64 %lines, i64 %length, ptr %codes, ptr %scales, ptr %sums)")
    with f.loop("0", "%lines") as line:
        begin = f.number("mul", line, "%length")
        end = f.number("add", begin, "%length")
        largest = f.variable(_FLOATS, "zeroinitializer")
        with f.loop(begin, end, CHANNELS) as place:
            size = _call(f, "fabs.v16f32", _vector(f, kind, f.at("%x", kind, place)))
            before = f.let(f"load {_FLOATS}, ptr {largest}")
            f.do(f"store {_FLOATS} {_call(f, 'maximum.v16f32', size, before)}, ptr {largest}")
        vector = f.let(f"load {_FLOATS}, ptr {largest}")
        top = f.let(f"call float @llvm.vector.reduce.fmaximum.v16f32({_FLOATS} {vector})")
        f.do(f"store float {f.let(f'fdiv float {top}, 127.0')}, ptr {f.at('%scales', 'float', line)}")
        zero = f.let(f"fcmp oeq float {top}, 0.0")
        inverse = f.let(f"select i1 {zero}, float 0.0, float {f.let(f'fdiv float 127.0, {top}')}")
        factor = f.splat("float", inverse, _FLOATS)
        sums = f.variable(_INTS, "zeroinitializer")
        with f.loop(begin, end, CHANNELS) as place:
            scaled = f.let(f"fmul {_FLOATS} {_vector(f, kind, f.at('%x', kind, place))}, {factor}")
            rounded = _call(f, "roundeven.v16f32", scaled)
            codes = f.let(f"call {_INTS} @llvm.fptosi.sat.v16i32.v16f32({_FLOATS} {rounded})")
            narrow = f.let(f"trunc {_INTS} {codes} to <{CHANNELS} x i8>")
            f.do(f"store <{CHANNELS} x i8> {narrow}, ptr {f.at('%codes', 'i8', place)}, align 1")
            total = f.let(f"add {_INTS} {codes}, {f.let(f'load {_INTS}, ptr {sums}')}")
            f.do(f"store {_INTS} {total}, ptr {sums}")
        whole = f.let(f"load {_INTS}, ptr {sums}")
        line_sum = f.let(f"call i32 @llvm.vector.reduce.add.v16i32({_INTS} {whole})")
        f.do(f"store i32 {line_sum}, ptr {f.at('%sums', 'i32', line)}")
    return f


def _product(bits: int, grouped: bool, kind: str, epilogue: str) -> Function:
    """Rows times the channels of the blocks ``first`` ... ``last``."""
    f = Function("void @product(ptr %arguments, i64 %first, i64 %last)")
    names = ("codes", "scales", "sums", "weight", "factors", "bias", "other", "out")
    given = {name: _argument(f, "ptr", place) for place, name in enumerate(names)}
    m, k, blocks = (_argument(f, "i64", place) for place in (8, 9, 10))
    groups = f.number("sdiv", k, str(GROUP))
    width = f.number("mul", blocks, str(CHANNELS))
    size = f.number("mul", groups, str(GROUP * CHANNELS * bits // 8))
    with f.loop("%first", "%last") as block:
        weight = f.at(given["weight"], "i8", f.number("mul", block, size))
        channel = f.number("mul", block, str(CHANNELS))
        bias = f.load(_FLOATS, f.at(given["bias"], "float", channel))
        with f.loop("0", m, ROWS) as row:
            rows = [f.number("add", row, str(offset)) for offset in range(ROWS)]
            if grouped:
                totals = _grouped(f, bits, given, weight, block, rows, k, groups)
            else:
                totals = _whole(f, given, weight, block, rows, k, groups)
            for place, total in zip(rows, totals, strict=True):
                index = f.number("add", f.number("mul", place, width), channel)
                result = f.let(f"fadd {_FLOATS} {total}, {bias}")
                if epilogue == "silu":
                    result = _silu(f, result)
                if epilogue == "times":
                    other = _vector(f, kind, f.at(given["other"], kind, index))
                    result = f.let(f"fmul {_FLOATS} {result}, {other}")
                stored = f"<{CHANNELS} x {kind}>"
                if kind != "float":
                    result = f.let(f"fptrunc {_FLOATS} {result} to {stored}")
                f.do(f"store {stored} {result}, ptr {f.at(given['out'], kind, index)}, align 1")
    return f


def _argument(f: Function, kind: str, place: int) -> str:
    pointer = f.let(f"getelementptr {_ARGUMENTS}, ptr %arguments, i64 0, i32 {place}")
    return f.let(f"load {kind}, ptr {pointer}")


def _dots(
    f: Function, given: Mapping[str, str], vectors: Sequence[str], starts: Sequence[str], before: Sequence[str]
) -> list[str]:
    """``before`` plus, for each row, the products of its 32 codes, which begin at ``starts``, and ``vectors``."""
    sums = list(before)
    for quad, vector in enumerate(vectors):
        for row, start in enumerate(starts):
            place = f.at(given["codes"], "i8", f.number("add", start, str(4 * quad)))
            four = f.splat("i32", f.let(f"load i32, ptr {place}, align 1"), _INTS)
            activations = f.let(f"bitcast {_INTS} {four} to {_BYTES}")
            sums[row] = f.let(
                f"call {_INTS} @llvm.x86.avx512.vpdpbusd.512({_INTS} {sums[row]}, {_BYTES} {vector}, "
                f"{_BYTES} {activations})"
            )
    return sums


def _whole(
    f: Function, given: Mapping[str, str], weight: str, block: str, rows: Sequence[str], k: str, groups: str
) -> list[str]:
    """Products of eight rows with one scale a channel and a row: integers to the end."""
    totals = [f.variable(_INTS, _shift(f, given, row)) for row in rows]
    with f.loop("0", groups) as group:
        column = f.number("mul", group, str(GROUP))
        vectors = _weights(f, 8, weight, group)
        starts = [f.number("add", f.number("mul", row, k), column) for row in rows]
        sums = _dots(f, given, vectors, starts, [f.let(f"load {_INTS}, ptr {total}") for total in totals])
        for total, value in zip(totals, sums, strict=True):
            f.do(f"store {_INTS} {value}, ptr {total}")
    factors = f.load(_FLOATS, f.at(given["factors"], _FLOATS, block))
    whole = [f.let(f"load {_INTS}, ptr {total}") for total in totals]
    numbers = [f.let(f"fmul {_FLOATS} {_floats(f, value)}, {factors}") for value in whole]
    scales = [_scale(f, given, row) for row in rows]
    return [f.let(f"fmul {_FLOATS} {number}, {scale}") for number, scale in zip(numbers, scales, strict=True)]


def _grouped(
    f: Function, bits: int, given: Mapping[str, str], weight: str, block: str, rows: Sequence[str], k: str, groups: str
) -> list[str]:
    """Products of eight rows: integers within 32 codes, floats over them, always from the first to the last."""
    halves = f"<{CHANNELS} x half>"
    totals = [f.variable(_FLOATS, "zeroinitializer") for _ in rows]
    with f.loop("0", groups) as group:
        column = f.number("mul", group, str(GROUP))
        vectors = _weights(f, bits, weight, group)
        starts = [f.number("add", f.number("mul", row, k), column) for row in rows]
        lines = [f.number("add", f.number("mul", row, groups), group) for row in rows]
        begin = [_shift(f, given, line) if bits == 8 else "zeroinitializer" for line in lines]
        sums = _dots(f, given, vectors, starts, begin)
        index = f.number("mul", f.number("add", f.number("mul", block, groups), group), "1" if bits == 8 else "2")
        factors = [
            f.let(f"fpext {halves} {f.load(halves, f.at(given['factors'], halves, part))} to {_FLOATS}")
            for part in ([index] if bits == 8 else [index, f.number("add", index, "1")])
        ]
        for line, total, value in zip(lines, totals, sums, strict=True):
            number = f.let(f"fmul {_FLOATS} {_floats(f, value)}, {factors[0]}")
            if bits == 4:
                codes = f.let(f"sitofp i32 {f.load('i32', f.at(given['sums'], 'i32', line))} to float")
                number = _fma(f, f.splat("float", codes, _FLOATS), factors[1], number)
            before = f.let(f"load {_FLOATS}, ptr {total}")
            f.do(f"store {_FLOATS} {_fma(f, number, _scale(f, given, line), before)}, ptr {total}")
    return [f.let(f"load {_FLOATS}, ptr {total}") for total in totals]


def _weights(f: Function, bits: int, weight: str, group: str) -> list[str]:
    """Eight vectors: four codes of each channel in each."""
    place = f.at(weight, "i8", f.number("mul", group, str(GROUP * CHANNELS * bits // 8)))
    loaded = [f.load(_BYTES, f.at(place, _BYTES, str(part))) for part in range(_QUADS * bits // 8)]
    if bits == 8:
        return loaded
    vectors = []
    for pair in loaded:
        vectors += [f.let(f"and {_BYTES} {pair}, splat (i8 15)"), f.let(f"lshr {_BYTES} {pair}, splat (i8 4)")]
    return vectors


def _shift(f: Function, given: Mapping[str, str], line: str) -> str:
    """What a sum begins with: weights of eight bits are stored 128 too high, so that they have no sign."""
    codes = f.load("i32", f.at(given["sums"], "i32", line))
    return f.splat("i32", f.let(f"mul i32 {codes}, -128"), _INTS)


def _scale(f: Function, given: Mapping[str, str], line: str) -> str:
    return f.splat("float", f.load("float", f.at(given["scales"], "float", line)), _FLOATS)


def _floats(f: Function, integers: str) -> str:
    return f.let(f"sitofp {_INTS} {integers} to {_FLOATS}")


def _silu(f: Function, x: str) -> str:
    """``x / (1 + exp(-x))``, the exponential to seven digits."""
    power = f.let(f"fmul {_FLOATS} {x}, {_constant(-1.4426950408889634)}")
    power = _call(f, "minimum.v16f32", power, _constant(126.0))
    power = _call(f, "maximum.v16f32", power, _constant(-126.0))
    whole = _call(f, "roundeven.v16f32", power)
    rest = f.let(f"fsub {_FLOATS} {power}, {whole}")
    value = _constant(_EXP2[0])
    for factor in _EXP2[1:]:
        value = _fma(f, value, rest, _constant(factor))
    exponent = f.let(f"call {_INTS} @llvm.fptosi.sat.v16i32.v16f32({_FLOATS} {whole})")
    biased = f.let(f"shl {_INTS} {f.let(f'add {_INTS} {exponent}, splat (i32 127)')}, splat (i32 23)")
    exponential = f.let(f"fmul {_FLOATS} {value}, {f.let(f'bitcast {_INTS} {biased} to {_FLOATS}')}")
    return f.let(f"fdiv {_FLOATS} {x}, {f.let(f'fadd {_FLOATS} {exponential}, {_constant(1.0)}')}")


# What a thread of the team does.
_WORK: Final = f"""
define void @work(ptr %arguments) {{
  %place = getelementptr {_ARGUMENTS}, ptr %arguments, i64 0, i32 10
  %blocks = load i64, ptr %place
  %me = call i32 @omp_get_thread_num()
  %all = call i32 @omp_get_num_threads()
  %id = sext i32 %me to i64
  %threads = sext i32 %all to i64
  %next = add i64 %id, 1
  %from = mul i64 %blocks, %id
  %to = mul i64 %blocks, %next
  %first = sdiv i64 %from, %threads
  %last = sdiv i64 %to, %threads
  call void @product(ptr %arguments, i64 %first, i64 %last)
  ret void
}}
"""
_LINEAR: Final = f"""
define void @linear(ptr %x, i64 %lines, i64 %length, ptr %arguments, i32 %threads) {{
  %codes.at = getelementptr {_ARGUMENTS}, ptr %arguments, i64 0, i32 0
  %scales.at = getelementptr {_ARGUMENTS}, ptr %arguments, i64 0, i32 1
  %sums.at = getelementptr {_ARGUMENTS}, ptr %arguments, i64 0, i32 2
  %blocks.at = getelementptr {_ARGUMENTS}, ptr %arguments, i64 0, i32 10
  %codes = load ptr, ptr %codes.at
  %scales = load ptr, ptr %scales.at
  %sums = load ptr, ptr %sums.at
  %blocks = load i64, ptr %blocks.at
  call void @quantize(ptr %x, i64 %lines, i64 %length, ptr %codes, ptr %scales, ptr %sums)
  %alone = icmp sle i32 %threads, 1
  br i1 %alone, label %one, label %many
one:
  call void @product(ptr %arguments, i64 0, i64 %blocks)
  ret void
many:
  call void @GOMP_parallel(ptr @work, ptr %arguments, i32 %threads, i32 0)
  ret void
}}
"""
