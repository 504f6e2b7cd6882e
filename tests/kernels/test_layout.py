"""The recorded argument list: canonical lines, first difference, and metadata checks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heptagram_kernels.buffers import K7Buffers
from heptagram_kernels.layout import K7_LAYOUT, Bindings, words_for
from heptagram_kernels.workspace import Workspace

NAMES = [argument.name for argument in K7_LAYOUT.arguments]


def test_lines_are_canonical_and_ordered() -> None:
    lines = K7_LAYOUT.describe()
    assert [line.split()[0] for line in lines] == NAMES
    assert lines[0] == "token_ids int64 [B,R] input device"
    assert lines[6] == "mask_pool int32 [P,W] state host"
    assert lines[14] == "logits bfloat16|float32 [B,R,V] state target"
    assert lines[20] == "candidates int64 [B,K,C] output device"
    K7_LAYOUT.check(lines)


@given(st.integers(0, len(NAMES) - 1), st.sampled_from(["drop", "swap", "change", "append"]))
def test_check_names_the_first_difference(index: int, how: str) -> None:
    lines = list(K7_LAYOUT.describe())
    first = index
    match how:
        case "drop":
            del lines[index]
        case "swap" if index:
            lines[index - 1], lines[index] = lines[index], lines[index - 1]
            first = index - 1
        case "append":
            lines.append("extra int64 [B] input host")
            first = len(NAMES)
        case _:
            lines[index] += " changed"
    with pytest.raises(ValueError, match=rf"k7_layout\[{first}\]: recorded `.*`, installed `.*`"):
        K7_LAYOUT.check(lines)


def test_validate_names_the_argument_and_the_need() -> None:
    bindings = Bindings(batch=2, vocab_size=100, pool_rows=5)
    K7_LAYOUT.validate({"mask_pool": torch.zeros(5, 4, dtype=torch.int32)}, bindings)
    tables = Bindings(batch=2, vocab_size=100, pool_rows=5, slots=3, table=7)
    K7_LAYOUT.validate({"block_tables": torch.zeros(3, 7, dtype=torch.int64)}, tables)
    with pytest.raises(ValueError, match=r"mask_pool: got torch.int32 \[5, 3\], need .* = \[5, 4\]"):
        K7_LAYOUT.validate({"mask_pool": torch.zeros(5, 3, dtype=torch.int32)}, bindings)
    with pytest.raises(ValueError, match=r"logits: got torch.float64"):
        K7_LAYOUT.validate({"logits": torch.zeros(2, 8, 100, dtype=torch.float64)}, bindings)
    with pytest.raises(ValueError, match="nonsense: not an argument"):
        K7_LAYOUT.validate({"nonsense": torch.zeros(1)}, bindings)


def test_buffers_have_the_layouts_names_dtypes_and_shapes_and_no_others() -> None:
    workspace, bindings = Workspace("step"), Bindings(batch=3, vocab_size=100, pool_rows=5, slots=4, table=2)
    workspace.reserve(K7Buffers.declarations(bindings))
    tables = K7_LAYOUT.declare(bindings, "block_tables", owner="target")
    taken = {name: getattr(K7Buffers.take(workspace), name) for name in K7Buffers.__slots__}
    K7_LAYOUT.validate(taken, bindings)
    assert [*taken, "block_tables", "logits"] == sorted(NAMES, key=[*taken, "block_tables", "logits"].index)
    assert [(one.name, one.shape) for one in tables] == [("target.block_tables", (4, 2))]
    # 19 tensors of int64 or float32, and the pool.
    assert workspace.nbytes == sum(tensor.nbytes for tensor in taken.values())


def test_words() -> None:
    assert [words_for(size) for size in (1, 32, 33, 49152, 129280)] == [1, 1, 2, 1536, 4040]
