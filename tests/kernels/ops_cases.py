"""Random arguments for every operation, and what it makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from heptagram_kernels.bitmask import pack
from heptagram_kernels.ops import FLOATS, Ops

VALUES: Final = (-math.inf, -3.0, -1e-7, -0.0, 0.0, 1e-7, 1.0, 2.0, 60000.0, math.inf)
ODD: Final = (math.nan, math.inf)


@dataclass(frozen=True)
class OpCase:
    """``written`` are outputs, or inputs that the operation changes."""

    name: str
    given: Mapping[str, Any]
    written: Mapping[str, Tensor]
    tolerance: float = 0.0

    def run(self, ops: Ops, device: str = "cpu") -> dict[str, Tensor]:
        """What is written to copies; what is given must stay as it is."""
        given = {name: _moved(value, device) for name, value in self.given.items()}
        before = {name: value.clone() for name, value in given.items() if isinstance(value, Tensor)}
        written = {name: _apart(value.to(device), self.name) for name, value in self.written.items()}
        getattr(ops, self.name)(**given, **written)
        for name, value in before.items():
            assert torch.equal(_bytes(given[name]), _bytes(value)), f"{self.name} wrote to {name}"
        return {name: value.cpu() for name, value in written.items()}

    def check(self, ops: Ops, reference: Ops, device: str = "cpu") -> None:
        expected, got = self.run(reference), self.run(ops, device)
        for name, value in expected.items():
            torch.testing.assert_close(
                got[name], value, rtol=self.tolerance, atol=self.tolerance, equal_nan=True, msg=f"{self.name}: {name}"
            )


def cases(name: str) -> st.SearchStrategy[OpCase]:
    return st.composite(_CASES[name])()


def _masked(draw: st.DrawFn, random: np.random.Generator) -> dict[str, Any]:
    """Few different logits, so that ties are common; every density; NaN now and then; all kinds of strides."""
    rows, width = draw(st.integers(1, 5)), draw(st.sampled_from([1, 31, 32, 33, 70, 600, 4096, 4130]))
    values = np.array(draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=5)))
    logits = values[random.integers(len(values), size=(rows, width))]
    if draw(st.booleans()):
        logits = logits + random.normal(size=logits.shape)
    for odd in draw(st.lists(st.sampled_from(ODD), max_size=2)):
        logits[random.integers(rows), random.integers(width)] = odd
    density = draw(st.sampled_from([0.0, 1 / width, 0.01, 0.5, 0.99, 1.0]))
    real = draw(st.integers(max(1, width - 40), width))
    pool = np.stack([pack(np.arange(width) < real), *[pack(random.random(width) < density) for _ in range(3)]])
    dtype = draw(st.sampled_from(FLOATS))
    return {
        "logits": _strided(torch.from_numpy(logits).to(dtype), draw(st.sampled_from(["dense", "rows", "columns"]))),
        "mask_pool": torch.from_numpy(pool),
        "mask_rows": torch.from_numpy(random.integers(-1, len(pool), size=rows)),
        "real_tokens": real,
    }


def _argmax(draw: st.DrawFn) -> OpCase:
    given = _masked(draw, _random(draw))
    return OpCase("masked_argmax", given, {"out": torch.full_like(given["mask_rows"], 99)})


def _sample(draw: st.DrawFn) -> OpCase:
    random = _random(draw)
    given = _masked(draw, random)
    rows = len(given["mask_rows"])
    warmth = random.choice([0.0, 1e-300, 0.01, 0.7, 1.0, 2.0], size=rows)
    given |= {
        "seeds": torch.from_numpy(random.integers(-(2**63), 2**63 - 1, size=rows)),
        "positions": torch.from_numpy(random.integers(0, 2**31, size=rows)),
        "temperature": torch.from_numpy(warmth),
    }
    return OpCase("masked_sample", given, {"out": torch.full_like(given["mask_rows"], 99)})


def _candidates(draw: st.DrawFn) -> OpCase:
    given = _masked(draw, _random(draw))
    shape = (len(given["mask_rows"]), draw(st.sampled_from([1, 2, 5, 16])))
    return OpCase(
        "top_candidates",
        given,
        {"out_ids": torch.full(shape, 99), "out_logits": torch.full(shape, 99.0)},
    )


def _chain(draw: st.DrawFn) -> OpCase:
    random, batch = _random(draw), draw(st.integers(1, 5))
    chosen = random.integers(0, 6, size=(batch, 8))
    token_ids = np.roll(chosen, 1, axis=1)
    token_ids = np.where(random.random(token_ids.shape) < draw(st.sampled_from([0, 0.1, 0.5])), 7, token_ids)
    chosen[random.random(chosen.shape) < draw(st.sampled_from([0, 0.1]))] = -1
    given = {
        "chosen": torch.from_numpy(chosen),
        "token_ids": torch.from_numpy(token_ids),
        "draft_counts": torch.from_numpy(random.integers(0, 8, size=batch)),
        "room": torch.from_numpy(random.choice([0, 1, 3, 8, 9, 2**40], size=batch)),
        "stop_ids": torch.tensor(draw(st.lists(st.integers(0, 9), max_size=3, unique=True)), dtype=torch.int64),
    }
    written = {"out_tokens": torch.full((batch, 8), 99), "out_counts": torch.full((batch,), 99)}
    return OpCase("verify_chain", given, written | {"out_finished": torch.full((batch,), 99)})


def _markov(draw: st.DrawFn) -> OpCase:
    """Small whole numbers: every order of summation gives the same."""
    random, dtype = _random(draw), draw(st.sampled_from(FLOATS))
    batch, width, rank = (
        draw(st.integers(1, 19)),
        draw(st.sampled_from([5, 64, 130])),
        draw(st.sampled_from([1, 8, 70])),
    )

    def whole(*shape: int) -> Tensor:
        return torch.from_numpy(random.integers(-3, 4, size=shape)).to(dtype)

    base = _strided(whole(batch, width), draw(st.sampled_from(["dense", "rows", "columns"])))
    given = {"base": base, "previous": torch.from_numpy(random.integers(0, width, size=batch))}
    given |= {"w1": whole(width, rank), "w2": whole(width, rank)}
    return OpCase("markov_logits", given, {"out": torch.full((batch, width), 99.0)})


def _confidence(draw: st.DrawFn) -> OpCase:
    random, dtype = _random(draw), draw(st.sampled_from(FLOATS))
    batch, size, rank, width = (
        draw(st.integers(1, 4)),
        draw(st.sampled_from([1, 64, 1100])),
        draw(st.integers(1, 70)),
        9,
    )

    def numbers(*shape: int) -> Tensor:
        return torch.from_numpy(random.normal(size=shape).astype(np.float32))

    given = {
        "hidden": _strided(numbers(batch, size).to(dtype), draw(st.sampled_from(["dense", "rows", "columns"]))),
        "previous": torch.from_numpy(random.integers(0, width, size=batch)),
        "w1": numbers(width, rank).to(dtype),
        "weight": numbers(size + rank) / math.sqrt(size + rank),
        "bias": numbers(1),
    }
    return OpCase("draft_confidence", given, {"out": torch.full((batch,), 99.0)}, tolerance=1e-4)


def _paged(draw: st.DrawFn, random: np.random.Generator) -> tuple[dict[str, Any], Tensor, tuple[int, int, int]]:
    """Tables of distinct blocks, the cache, and sizes: batch, entries of a table, block size."""
    slots, entries, size = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.sampled_from([1, 4, 16]))
    batch, width = draw(st.integers(1, slots)), draw(st.sampled_from([1, 24, 1100]))
    blocks = random.permutation(slots * entries + 2)[: slots * entries]
    cache = torch.from_numpy(random.normal(size=((slots * entries + 2) * size + 3, width)))
    given = {
        "block_tables": torch.from_numpy(blocks.reshape(slots, entries)),
        "slots": torch.from_numpy(random.permutation(slots)[:batch]),
        "block_size": size,
    }
    return given, cache.to(draw(st.sampled_from(FLOATS))), (batch, entries, size)


def _write(draw: st.DrawFn) -> OpCase:
    random = _random(draw)
    given, cache, (batch, entries, size) = _paged(draw, random)
    rows = torch.from_numpy(random.normal(size=(batch, draw(st.integers(1, 8)), cache.shape[1]))).to(cache.dtype)
    positions = torch.from_numpy(random.integers(0, entries * size + 2, size=batch))
    return OpCase("kv_write", given | {"rows": rows, "positions": positions}, {"cache": cache})


def _gather(draw: st.DrawFn) -> OpCase:
    given, cache, (batch, entries, size) = _paged(draw, _random(draw))
    rows = draw(st.integers(1, entries * size))
    out = torch.full((batch, rows, cache.shape[1]), 99, dtype=cache.dtype)
    return OpCase("kv_gather", given | {"cache": cache}, {"out": out})


def _scatter(draw: st.DrawFn) -> OpCase:
    random, size, width = _random(draw), draw(st.integers(1, 9)), draw(st.sampled_from([1, 40, 1100]))
    count = draw(st.integers(0, size))

    def words(rows: int) -> Tensor:
        return torch.from_numpy(random.integers(-(2**31), 2**31, size=(rows, width)).astype(np.int32))

    given = {"rows": words(count), "places": torch.from_numpy(random.permutation(size)[:count])}
    return OpCase("scatter_rows", given, {"pool": words(size)})


_CASES: Final[Mapping[str, Callable[[st.DrawFn], OpCase]]] = {
    "masked_argmax": _argmax,
    "masked_sample": _sample,
    "top_candidates": _candidates,
    "verify_chain": _chain,
    "markov_logits": _markov,
    "draft_confidence": _confidence,
    "kv_write": _write,
    "kv_gather": _gather,
    "scatter_rows": _scatter,
}
NAMES: Final = tuple(_CASES)


def _random(draw: st.DrawFn) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


def _strided(tensor: Tensor, kind: str) -> Tensor:
    """The same numbers [N, V] with gaps behind rows, or between the numbers of a row."""
    if kind == "dense":
        return tensor
    rows, width = tensor.shape
    wide = tensor.new_full((rows, width + 3) if kind == "rows" else (rows, 2 * width), 9)
    view = wide[:, :width] if kind == "rows" else wide[:, ::2]
    view.copy_(tensor)
    return view


def _apart(tensor: Tensor, name: str) -> Tensor:
    """A copy; outputs lie with gaps between their numbers, caches and pools with gaps behind their rows."""
    if name in ("kv_write", "scatter_rows"):
        return _strided(tensor, "rows")
    apart = tensor.new_zeros((*tensor.shape, 2))[..., 0]
    return apart.copy_(tensor)


def _moved(value: Any, device: str) -> Any:
    """``value`` on the device, with its strides."""
    if not isinstance(value, Tensor) or value.device.type == device:
        return value
    base = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
    return base.copy_(value)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8) if tensor.numel() else tensor
