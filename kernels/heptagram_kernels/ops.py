"""The operations of the K7 step behind one face: arguments are checked here, then a device's module computes.

Names of sizes: N rows of logits, V their width, P and W = ceil(V / 32) as of the mask pool, B sequences, R = 8 rows of
each, S slots, M entries of a block table, C rows of a cache, F numbers of a cache row, K candidates, D hidden size and
H rank of a Markov head. Outputs are the caller's tensors. No operation writes an input, except where it says so.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from heptagram_kernels.layout import ROWS, words_for

IMPLEMENTATIONS: Final[dict[str, str]] = {
    "cpu": "heptagram_kernels.cpu_ops",
    "cuda": "heptagram_kernels.cuda_ops",
    "npu": "heptagram_kernels.npu_ops",
    "reference": "heptagram_kernels.reference_ops",
}
"""Modules by device; ``reference`` is plain torch of static shapes, and runs wherever torch does."""

FLOATS: Final = (torch.bfloat16, torch.float16, torch.float32)
MAX_CANDIDATES: Final = 16

NOBODYS: Final = -1
"""Mask row of a row that nobody asks for."""

RUNNING, STOPPED, AT_LIMIT, NO_CHOICE = range(4)
"""What :meth:`Ops.verify_chain` writes to ``out_finished``."""


class Implementation(Protocol):
    """What a device's module offers. The arguments are those of :class:`Ops`, and were checked."""

    def masked_argmax(
        self, logits: Tensor, mask_pool: Tensor, mask_rows: Tensor, real_tokens: int, out: Tensor
    ) -> None: ...

    def masked_sample(
        self,
        logits: Tensor,
        mask_pool: Tensor,
        mask_rows: Tensor,
        real_tokens: int,
        seeds: Tensor,
        positions: Tensor,
        temperature: Tensor,
        out: Tensor,
    ) -> None: ...

    def top_candidates(
        self,
        logits: Tensor,
        mask_pool: Tensor,
        mask_rows: Tensor,
        real_tokens: int,
        out_ids: Tensor,
        out_logits: Tensor,
    ) -> None: ...

    def verify_chain(
        self,
        chosen: Tensor,
        token_ids: Tensor,
        draft_counts: Tensor,
        room: Tensor,
        stop_ids: Tensor,
        out_tokens: Tensor,
        out_counts: Tensor,
        out_finished: Tensor,
    ) -> None: ...

    def markov_logits(self, base: Tensor, previous: Tensor, w1: Tensor, w2: Tensor, out: Tensor) -> None: ...

    def draft_confidence(
        self, hidden: Tensor, previous: Tensor, w1: Tensor, weight: Tensor, bias: Tensor, out: Tensor
    ) -> None: ...

    def kv_write(
        self, cache: Tensor, rows: Tensor, block_tables: Tensor, slots: Tensor, positions: Tensor, block_size: int
    ) -> None: ...

    def kv_gather(self, cache: Tensor, block_tables: Tensor, slots: Tensor, block_size: int, out: Tensor) -> None: ...

    def scatter_rows(self, pool: Tensor, rows: Tensor, places: Tensor) -> None: ...


class Ops:
    """Every method raises ValueError, naming the argument, for a dtype, shape or device that does not fit.

    Values are checked where the arguments lie in host memory; elsewhere that would have to wait for the device.
    """

    def __init__(self, implementation: Implementation) -> None:
        self._run = implementation

    def masked_argmax(
        self, *, logits: Tensor, mask_pool: Tensor, mask_rows: Tensor, real_tokens: int, out: Tensor
    ) -> None:
        """The best allowed token of each row, the lowest id on a tie.

        Args:
            logits: [N, V], bfloat16, float16 or float32, of any strides.
            mask_pool: int32 [P, W].
            mask_rows: int64 [N]; -1 for a row that nobody asks for, which has no allowed tokens and is not read.
            real_tokens: ids below it are what row 0 of the pool allows, so that row need not be read.
            out: int64 [N], written; -1 where nothing is allowed, an allowed logit is NaN, or all of them are -inf.
        """
        _check_masked(logits, mask_pool, mask_rows, real_tokens)
        _check("out", out, (torch.int64,), (logits.shape[0],), logits)
        self._run.masked_argmax(logits, mask_pool, mask_rows, real_tokens, out)

    def masked_sample(
        self,
        *,
        logits: Tensor,
        mask_pool: Tensor,
        mask_rows: Tensor,
        real_tokens: int,
        seeds: Tensor,
        positions: Tensor,
        temperature: Tensor,
        out: Tensor,
    ) -> None:
        """Draw each row from its allowed tokens, with the noise of :mod:`heptagram_kernels.noise`.

        Args:
            logits, mask_pool, mask_rows, real_tokens: as of :meth:`masked_argmax`.
            seeds, positions: int64 [N], what the noise of each row is keyed by.
            temperature: float64 [N]; at 0 a row gives its argmax.
            out: int64 [N], written; -1 where the argmax is, and where its logit is infinite.
        """
        _check_masked(logits, mask_pool, mask_rows, real_tokens)
        for name, tensor in (("seeds", seeds), ("positions", positions), ("out", out)):
            _check(name, tensor, (torch.int64,), (logits.shape[0],), logits)
        _check("temperature", temperature, (torch.float64,), (logits.shape[0],), logits)
        _check_range("temperature", temperature, 0, None)
        self._run.masked_sample(logits, mask_pool, mask_rows, real_tokens, seeds, positions, temperature, out)

    def top_candidates(
        self,
        *,
        logits: Tensor,
        mask_pool: Tensor,
        mask_rows: Tensor,
        real_tokens: int,
        out_ids: Tensor,
        out_logits: Tensor,
    ) -> None:
        """The K likeliest allowed tokens of each row, best first, of equals the lowest id first.

        Args:
            logits, mask_pool, mask_rows, real_tokens: as of :meth:`masked_argmax`; NaN and -inf are no candidates.
            out_ids: int64 [N, K], written, K from 1 to 16; -1 where there are fewer.
            out_logits: float32 [N, K], written; -inf where there are fewer.
        """
        _check_masked(logits, mask_pool, mask_rows, real_tokens)
        if out_ids.dim() != 2 or not 1 <= out_ids.shape[1] <= MAX_CANDIDATES:
            raise ValueError(f"out_ids: got {list(out_ids.shape)}, need [N, K] with K from 1 to {MAX_CANDIDATES}")
        shape = (logits.shape[0], out_ids.shape[1])
        _check("out_ids", out_ids, (torch.int64,), shape, logits)
        _check("out_logits", out_logits, (torch.float32,), shape, logits)
        self._run.top_candidates(logits, mask_pool, mask_rows, real_tokens, out_ids, out_logits)

    def verify_chain(
        self,
        *,
        chosen: Tensor,
        token_ids: Tensor,
        draft_counts: Tensor,
        room: Tensor,
        stop_ids: Tensor,
        out_tokens: Tensor,
        out_counts: Tensor,
        out_finished: Tensor,
    ) -> None:
        """What a step commits: the longest prefix of drafts that were chosen, and the bonus token behind it.

        It ends with a stop token, before a row of which nothing could be chosen, and where the room ends.

        Args:
            chosen: int64 [B, R], each row's token, -1 for none.
            token_ids: int64 [B, R], the anchor and the drafts. draft_counts: int64 [B], valid drafts, 0 to 7.
            room: int64 [B], how many more tokens the sequence may have.
            stop_ids: int64 [E], tokens that end a sequence.
            out_tokens: int64 [B, R], written: the committed tokens, -1 behind them. It may be ``chosen``.
            out_counts: int64 [B], written: how many.
            out_finished: int64 [B], written: why the sequence ends. RUNNING: it does not; STOPPED: at a stop token,
                which is committed; AT_LIMIT: no room is left; NO_CHOICE: nothing could be chosen.
        """
        batch = chosen.shape[0]
        for name, tensor in (("chosen", chosen), ("token_ids", token_ids), ("out_tokens", out_tokens)):
            _check(name, tensor, (torch.int64,), (batch, ROWS), chosen)
        one_each = {"draft_counts": draft_counts, "room": room, "out_counts": out_counts, "out_finished": out_finished}
        for name, tensor in one_each.items():
            _check(name, tensor, (torch.int64,), (batch,), chosen)
        _check("stop_ids", stop_ids, (torch.int64,), (stop_ids.numel(),), chosen)
        _check_range("draft_counts", draft_counts, 0, ROWS)
        _check_range("room", room, 0, None)
        self._run.verify_chain(chosen, token_ids, draft_counts, room, stop_ids, out_tokens, out_counts, out_finished)

    def markov_logits(self, *, base: Tensor, previous: Tensor, w1: Tensor, w2: Tensor, out: Tensor) -> None:
        """One position of DSpark's sequential head: ``base + w1[previous] @ w2.T``, the exact proposal's logits.

        Args:
            base: [B, V], the draft network's logits. previous: int64 [B], the token before each row.
            w1, w2: [V, H], of one dtype.
            out: float32 [B, V], written.
        """
        _check_matrix("base", base, FLOATS)
        _check_head(base.shape[0], previous, w1, base)
        _check("w1", w1, FLOATS, (base.shape[1], w1.shape[1]), base)
        _check("w2", w2, (w1.dtype,), tuple(w1.shape), base)
        _check("out", out, (torch.float32,), tuple(base.shape), base)
        self._run.markov_logits(base, previous, w1, w2, out)

    def draft_confidence(
        self, *, hidden: Tensor, previous: Tensor, w1: Tensor, weight: Tensor, bias: Tensor, out: Tensor
    ) -> None:
        """DSpark's confidence that a draft is accepted: ``sigmoid(weight . [hidden, w1[previous]] + bias)``.

        Args:
            hidden: [B, D]. previous: int64 [B]. w1: [V, H].
            weight: float32 [D + H]. bias: float32 [1].
            out: float32 [B], written.
        """
        _check_matrix("hidden", hidden, FLOATS)
        _check_head(hidden.shape[0], previous, w1, hidden)
        _check("weight", weight, (torch.float32,), (hidden.shape[1] + w1.shape[1],), hidden)
        _check("bias", bias, (torch.float32,), (1,), hidden)
        _check("out", out, (torch.float32,), (hidden.shape[0],), hidden)
        self._run.draft_confidence(hidden, previous, w1, weight, bias, out)

    def kv_write(
        self,
        *,
        cache: Tensor,
        rows: Tensor,
        block_tables: Tensor,
        slots: Tensor,
        positions: Tensor,
        block_size: int,
    ) -> None:
        """Put a step's rows where the block tables say.

        Args:
            cache: [C, F], written. rows: [B, T, F] of its dtype: T neighbouring rows of each sequence.
            block_tables: int64 [S, M]; entry ``i`` of a slot is the block that holds its positions from
                ``i * block_size`` on, and block ``b`` lies at cache row ``b * block_size``.
            slots, positions: int64 [B]; slots are distinct, and row ``t`` lies at ``positions + t``. Rows behind the
                table are not written.
        """
        _check_matrix("cache", cache, FLOATS)
        if rows.dim() != 3:
            raise ValueError(f"rows: got {list(rows.shape)}, need [B, T, F]")
        _check("rows", rows, (cache.dtype,), (*rows.shape[:2], cache.shape[1]), cache)
        _check_tables(cache, block_tables, slots, block_size, batch=rows.shape[0])
        _check("positions", positions, (torch.int64,), (rows.shape[0],), cache)
        _check_range("positions", positions, 0, None)
        _check_dense("cache", cache)
        self._run.kv_write(cache, rows, block_tables, slots, positions, block_size)

    def kv_gather(self, *, cache: Tensor, block_tables: Tensor, slots: Tensor, block_size: int, out: Tensor) -> None:
        """The first T cache rows of each sequence, in order.

        Args:
            cache, block_tables, block_size: as of :meth:`kv_write`. slots: int64 [B].
            out: [B, T, F] of the cache's dtype, written; T is at most ``M * block_size``.
        """
        _check_matrix("cache", cache, FLOATS)
        if out.dim() != 3 or (block_tables.dim() == 2 and out.shape[1] > block_tables.shape[1] * block_size):
            raise ValueError(f"out: got {list(out.shape)}, need [B, T, F] with T at most M * {block_size}")
        _check("out", out, (cache.dtype,), (*out.shape[:2], cache.shape[1]), cache)
        _check_tables(cache, block_tables, slots, block_size, batch=out.shape[0])
        _check_dense("cache", cache)
        self._run.kv_gather(cache, block_tables, slots, block_size, out)

    def scatter_rows(self, *, pool: Tensor, rows: Tensor, places: Tensor) -> None:
        """Write new mask rows into the pool.

        Args:
            pool: int32 [P, W], written. rows: int32 [N, W].
            places: int64 [N], distinct; a row for place 0 is dropped, because that allows all tokens for good.
        """
        _check_matrix("pool", pool, (torch.int32,))
        _check("rows", rows, (torch.int32,), (places.numel(), pool.shape[1]), pool)
        _check("places", places, (torch.int64,), (places.numel(),), pool)
        _check_range("places", places, 0, pool.shape[0])
        _check_dense("pool", pool)
        self._run.scatter_rows(pool, rows, places)


def load_ops(name: str) -> Ops:
    """The operations of a device, or the ``reference``.

    Raises:
        ValueError: there are none for it; the message names those that are.
    """
    if name not in IMPLEMENTATIONS:
        raise ValueError(f"operations for {name!r}: there are none; choose one of {', '.join(sorted(IMPLEMENTATIONS))}")
    return Ops(cast(Implementation, import_module(IMPLEMENTATIONS[name])))


def _check(name: str, tensor: Tensor, dtypes: tuple[torch.dtype, ...], shape: tuple[int, ...], beside: Tensor) -> None:
    if tensor.dtype not in dtypes or tuple(tensor.shape) != shape or tensor.device != beside.device:
        wanted = " or ".join(str(dtype) for dtype in dtypes)
        got = f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
        raise ValueError(f"{name}: got {got}, need {wanted} {list(shape)} on {beside.device}")


def _check_matrix(name: str, tensor: Tensor, dtypes: tuple[torch.dtype, ...]) -> None:
    if tensor.dim() != 2 or not tensor.shape[1]:
        raise ValueError(f"{name}: got {list(tensor.shape)}, need two sizes, the second of them positive")
    _check(name, tensor, dtypes, tuple(tensor.shape), tensor)


def _check_dense(name: str, tensor: Tensor) -> None:
    if tensor.stride(1) != 1:
        raise ValueError(f"{name}: has the strides {tensor.stride()}; the numbers of a row must be neighbours")


def _check_range(name: str, tensor: Tensor, low: int, end: int | None) -> None:
    if tensor.device.type != "cpu" or not tensor.numel():
        return
    values = tensor.numpy()  # of so few numbers torch takes three times as long to tell the smallest
    smallest, largest = np.minimum.reduce(values, axis=None), np.maximum.reduce(values, axis=None)
    if not (smallest >= low and (end is None or largest < end)):
        raise ValueError(
            f"{name}: holds {tensor.tolist()}; every value must be from {low} "
            + ("on" if end is None else f"to {end - 1}")
        )


def _check_masked(logits: Tensor, mask_pool: Tensor, mask_rows: Tensor, real_tokens: int) -> None:
    _check_matrix("logits", logits, FLOATS)
    _check("mask_pool", mask_pool, (torch.int32,), (mask_pool.shape[0], words_for(logits.shape[1])), logits)
    _check("mask_rows", mask_rows, (torch.int64,), (logits.shape[0],), logits)
    _check_range("mask_rows", mask_rows, -1, mask_pool.shape[0])
    if not 1 <= real_tokens <= logits.shape[1]:
        raise ValueError(f"real_tokens: got {real_tokens}; must be 1 to {logits.shape[1]}")


def _check_head(batch: int, previous: Tensor, w1: Tensor, beside: Tensor) -> None:
    _check_matrix("w1", w1, FLOATS)
    _check("w1", w1, FLOATS, tuple(w1.shape), beside)
    _check("previous", previous, (torch.int64,), (batch,), beside)
    _check_range("previous", previous, 0, w1.shape[0])


def _check_tables(cache: Tensor, block_tables: Tensor, slots: Tensor, block_size: int, *, batch: int) -> None:
    _check_matrix("block_tables", block_tables, (torch.int64,))
    _check("block_tables", block_tables, (torch.int64,), tuple(block_tables.shape), cache)
    _check("slots", slots, (torch.int64,), (batch,), cache)
    if block_size < 1:
        raise ValueError(f"block_size: got {block_size}; must be positive")
    _check_range("slots", slots, 0, block_tables.shape[0])
    _check_range("block_tables", block_tables, 0, cache.shape[0] // block_size)
