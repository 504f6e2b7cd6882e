"""Every device's operations equal the plain-torch reference; wrong arguments are named before anything is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heptagram_kernels.bitmask import pack, unpack
from heptagram_kernels.ops import AT_LIMIT, IMPLEMENTATIONS, NO_CHOICE, RUNNING, STOPPED, load_ops
from tests.kernels.ops_cases import NAMES, cases

REFERENCE = load_ops("reference")


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_cpu_equals_the_reference(name: str, data: st.DataObject) -> None:
    data.draw(cases(name)).check(load_ops("cpu"), REFERENCE)


def test_triton_kernels_equal_the_reference_in_the_interpreter() -> None:
    """In a process of its own: the interpreter is chosen when triton is imported. It proves what the kernels compute,
    not that they compile."""
    pytest.importorskip("triton")
    root = Path(__file__).resolve().parents[2]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(root / "tests/kernels/interpreted.py"),
    ]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    run = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]


def test_every_implementation_is_a_module_that_exists() -> None:
    for module in IMPLEMENTATIONS.values():
        assert (Path(__file__).parents[2] / "kernels" / Path(*module.split("."))).with_suffix(".py").exists()
    with pytest.raises(ValueError, match=r"'tpu'.*choose one of cpu, cuda, npu, reference"):
        load_ops("tpu")


def _chain(chosen: list[int], drafts: list[int], *, room: int = 99, stops: tuple[int, ...] = (9,)) -> Any:
    padded = [*chosen, *[5] * (8 - len(chosen))]
    tokens, counts = torch.full((1, 8), 99), torch.zeros(1, dtype=torch.int64)
    finished = torch.zeros(1, dtype=torch.int64)
    REFERENCE.verify_chain(
        chosen=torch.tensor([padded]),
        token_ids=torch.tensor([[0, *drafts, *[5] * (7 - len(drafts))]]),
        draft_counts=torch.tensor([len(drafts)]),
        room=torch.tensor([room]),
        stop_ids=torch.tensor(stops, dtype=torch.int64),
        out_tokens=tokens,
        out_counts=counts,
        out_finished=finished,
    )
    return [token for token in tokens[0].tolist() if token >= 0], counts.item(), finished.item()


@pytest.mark.parametrize(
    ("chosen", "drafts", "options", "expected"),
    [
        ([1, 2, 3], [1, 2], {}, ([1, 2, 3], 3, RUNNING)),
        ([1, 2, 3], [1, 4], {}, ([1, 2], 2, RUNNING)),
        ([1, 2, 3], [], {}, ([1], 1, RUNNING)),
        ([1, 9, 3], [1, 9], {}, ([1, 9], 2, STOPPED)),
        ([1, 2, 9], [1, 4], {}, ([1, 2], 2, RUNNING)),
        ([1, 2, 3], [1, 2], {"room": 2}, ([1, 2], 2, AT_LIMIT)),
        ([1, 9, 3], [1, 9], {"room": 2}, ([1, 9], 2, STOPPED)),
        ([1, 2], [1], {"room": 2}, ([1, 2], 2, AT_LIMIT)),
        ([1, 2], [1], {"room": 0}, ([], 0, AT_LIMIT)),
        ([1, -1, 3], [1, 2], {}, ([1], 1, NO_CHOICE)),
        ([1, 2, -1], [4, 2], {}, ([1], 1, RUNNING)),
        ([9, 2], [9], {"stops": ()}, ([9, 2], 2, RUNNING)),
        ([1, 2, 3, 4, 6, 7, 8, 1], [1, 2, 3, 4, 6, 7, 8], {}, ([1, 2, 3, 4, 6, 7, 8, 1], 8, RUNNING)),
    ],
)
def test_a_chain_by_hand(chosen: list[int], drafts: list[int], options: dict[str, Any], expected: Any) -> None:
    assert _chain(chosen, drafts, **options) == expected


@settings(max_examples=50, deadline=None)
@given(case=cases("masked_argmax"))
def test_the_reference_is_the_definition(case: Any) -> None:
    given_, out = case.given, case.run(REFERENCE)["out"].tolist()
    for row, place in enumerate(given_["mask_rows"].tolist()):
        values = given_["logits"][row].float().tolist()
        allowed = unpack(given_["mask_pool"][place].numpy(), len(values))
        live = [(value, -token) for token, value in enumerate(values) if place >= 0 and allowed[token]]
        usable = live and all(value == value for value, _ in live) and max(live)[0] > float("-inf")
        assert out[row] == (-max(live)[1] if usable else -1)


def test_row_0_is_known_without_being_read() -> None:
    """The padding behind the real tokens is forbidden even where the pool's row 0 was overwritten."""
    for name in ("cpu", "reference"):
        out = torch.zeros(1, dtype=torch.int64)
        load_ops(name).masked_argmax(
            logits=torch.tensor([[1.0, 3.0, 2.0, 9.0]]),
            mask_pool=torch.from_numpy(pack(torch.zeros(4, dtype=torch.bool).numpy())[None]),
            mask_rows=torch.zeros(1, dtype=torch.int64),
            real_tokens=3,
            out=out,
        )
        assert out.tolist() == [1]


@pytest.mark.parametrize(
    ("name", "argument", "value", "message"),
    [
        ("masked_argmax", "logits", torch.zeros(2, 40, dtype=torch.float64), "logits: got torch.float64"),
        ("masked_argmax", "logits", torch.zeros(2, 8, 40), "logits: .* need two sizes"),
        ("masked_argmax", "mask_pool", torch.zeros(3, 1, dtype=torch.int32), "mask_pool: got"),
        ("masked_argmax", "mask_rows", torch.tensor([0, 3]), "mask_rows: .* must be from -1 to 2"),
        ("masked_argmax", "real_tokens", 41, "real_tokens: got 41; must be 1 to 40"),
        ("masked_argmax", "out", torch.zeros(2), "out: got torch.float32"),
        ("masked_argmax", "out", torch.zeros(2, dtype=torch.int64, device="meta"), "out: got .* on meta"),
    ],
)
def test_wrong_arguments_are_named(name: str, argument: str, value: Tensor | int, message: str) -> None:
    arguments: dict[str, Any] = {
        "logits": torch.zeros(2, 40),
        "mask_pool": torch.zeros((3, 2), dtype=torch.int32),
        "mask_rows": torch.zeros(2, dtype=torch.int64),
        "real_tokens": 40,
        "out": torch.full((2,), 99),
    }
    with pytest.raises(ValueError, match=message):
        getattr(load_ops("cpu"), name)(**arguments | {argument: value})
    assert arguments["out"].tolist() == [99, 99]


def test_block_tables_that_leave_the_cache_are_refused_before_anything_is_written() -> None:
    cache = torch.zeros(8, 2)
    with pytest.raises(ValueError, match=r"block_tables: .* must be from 0 to 1"):
        REFERENCE.kv_write(
            cache=cache,
            rows=torch.ones(1, 1, 2),
            block_tables=torch.tensor([[2]]),
            slots=torch.tensor([0]),
            positions=torch.tensor([0]),
            block_size=4,
        )
    assert not cache.any()
