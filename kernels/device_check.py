"""``python kernels/device_check.py``: are the kernels right on this machine's GPU? Some two minutes.

With a GPU every operation is compared with its plain-torch reference at the width of a real vocabulary, rows are
compared bit for bit alone and in company, a step of all operations is captured as a CUDA graph and replayed on changed
inputs, steps of the engine's own program through its graphs equal the CPU's, and timings are printed. Without one the
same kernels run in triton's interpreter on small shapes, which proves what they compute, not that they compile, nor
graphs, nor speed.

Exit code: 0 all of it was proven on a GPU, 2 there is no GPU and the interpreter's part was proven, 1 something failed.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

ON_GPU: Final = torch.cuda.is_available()
if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

from device_steps import check_steps  # noqa: E402
from heptagram_kernels.devices import load_device  # noqa: E402
from heptagram_kernels.graph import load_graph  # noqa: E402
from heptagram_kernels.layout import ROWS, words_for  # noqa: E402
from heptagram_kernels.ops import Ops, load_ops  # noqa: E402

DEVICE: Final = "cuda" if ON_GPU else "cpu"
VOCAB: Final = 129_280 if ON_GPU else 4_200
BATCH: Final = 64 if ON_GPU else 3
RANK, HIDDEN, FEATURES, BLOCK_SIZE, TABLE = (256, 4096, 1024, 64, 16) if ON_GPU else (24, 70, 40, 4, 3)
REAL: Final = VOCAB - 5
KINDS: Final = ("all", "sparse", "dense", "none")


@dataclass(frozen=True)
class Call:
    """Arguments of one operation; ``written`` are copied before it runs."""

    name: str
    given: Mapping[str, Any]
    written: Mapping[str, Tensor]
    exact: bool = True

    def run(self, ops: Ops) -> dict[str, Tensor]:
        written = {name: tensor.clone() for name, tensor in self.written.items()}
        getattr(ops, self.name)(**self.given, **written)
        return written

    def row(self, row: int) -> Call:
        """The same for one row of the batch; what the batch shares is left whole."""
        shared = {"mask_pool", "w1", "w2", "weight", "bias"}

        def cut(name: str, value: Any) -> Any:
            return value if name in shared or not isinstance(value, Tensor) else value[row : row + 1]

        given = {name: cut(name, value) for name, value in self.given.items()}
        return Call(self.name, given, {name: cut(name, value) for name, value in self.written.items()})


def main() -> int:
    print(_machine(), flush=True)
    torch.manual_seed(7)
    failed = [name for name, check in CHECKS.items() if not _passes(name, check)]
    if failed:
        print(f"FAILED: {', '.join(failed)}")
        return 1
    if not ON_GPU:
        print("No GPU: results were proven in the interpreter; nothing was captured, timed, or run as machine code")
        return 2
    timings()
    print("All checks passed on the GPU")
    return 0


def equal_to_reference() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for call in calls(dtype):
            expected, got = call.run(load_ops("reference")), call.run(load_ops("cuda"))
            for name, value in expected.items():
                tolerance = 0.0 if call.exact else 1e-3
                torch.testing.assert_close(
                    got[name], value, rtol=tolerance, atol=tolerance, msg=f"{call.name}, {dtype}: {name}"
                )


def rows_alone_and_together() -> None:
    """Nothing but a row itself decides its bits."""
    ops = load_ops("cuda")
    for call in calls(torch.bfloat16)[:5]:
        together = call.run(ops)
        for row in range(0, len(next(iter(together.values()))), 7 if ON_GPU else 1):
            for name, value in call.row(row).run(ops).items():
                assert torch.equal(value[0], together[name][row]), f"{call.name}: row {row} of {name} differs alone"


def graph_replays() -> None:
    """A step of all operations, captured where there is a GPU: replays equal the reference, and each other."""
    given = calls(torch.bfloat16)
    buffers = [{name: tensor.clone() for name, tensor in call.written.items()} for call in given]
    graph = load_graph(DEVICE)()
    graph.capture(partial(_step, given, buffers))
    for seed in range(3):
        torch.manual_seed(seed)
        for call, written, fresh in zip(given, buffers, calls(torch.bfloat16), strict=True):
            for name, tensor in call.given.items():
                if isinstance(tensor, Tensor):
                    tensor.copy_(fresh.given[name])
            for name, tensor in written.items():
                tensor.copy_(call.written[name])
        graph.replay()
        first = [{name: tensor.clone() for name, tensor in written.items()} for written in buffers]
        for call, written in zip(given, first, strict=True):
            for name, value in call.run(load_ops("reference")).items():
                tolerance = 0.0 if call.exact else 1e-3
                torch.testing.assert_close(written[name], value, rtol=tolerance, atol=tolerance)
        graph.replay()
        for old, new in zip(first, buffers, strict=True):
            assert all(torch.equal(old[name], new[name]) for name in old), "a second replay gave other bits"


def whole_steps() -> None:
    """Ordinary, constrained and sampled; without a GPU there is no graph, and the steps run eagerly."""
    device = load_device("cuda")
    if ON_GPU:
        device.select(0)
    else:
        device = replace(device, graph=load_graph("cpu"))
    check_steps(device, DEVICE, vocab_size=VOCAB, real_tokens=REAL)


CHECKS: Final[Mapping[str, Callable[[], None]]] = {
    "operations equal their references": equal_to_reference,
    "rows alone and together are bit-equal": rows_alone_and_together,
    "the step replayed as a graph": graph_replays,
    "whole steps equal the CPU's": whole_steps,
}


def calls(dtype: torch.dtype) -> list[Call]:
    """One call of each operation. Those whose arguments all have the batch first come first."""
    rows = BATCH * ROWS
    masked = {
        "logits": torch.randn(rows, VOCAB, device=DEVICE).to(dtype),
        "mask_pool": torch.stack([_mask(kind) for kind in KINDS]),
        "mask_rows": torch.randint(len(KINDS), (rows,), device=DEVICE),
        "real_tokens": REAL,
    }
    drawn = {
        "seeds": torch.randint(2**40, (rows,), device=DEVICE),
        "positions": torch.randint(2**20, (rows,), device=DEVICE),
        "temperature": torch.randint(3, (rows,), device=DEVICE).double() * 0.7,
    }
    head = {
        "previous": torch.randint(VOCAB, (BATCH,), device=DEVICE),
        "w1": torch.randint(-2, 3, (VOCAB, RANK), device=DEVICE).to(dtype),
    }
    base = {"base": torch.randint(-9, 9, (BATCH, VOCAB), device=DEVICE).to(dtype)}
    base["w2"] = torch.randint(-2, 3, (VOCAB, RANK), device=DEVICE).to(dtype)
    weight = torch.randn(HIDDEN + RANK, device=DEVICE) / (HIDDEN + RANK) ** 0.5
    confidence = {"hidden": torch.randn(BATCH, HIDDEN, device=DEVICE).to(dtype), "weight": weight}
    confidence["bias"] = torch.randn(1, device=DEVICE)
    paged = {
        "block_tables": torch.randperm(BATCH * TABLE, device=DEVICE).view(BATCH, TABLE),
        "slots": torch.randperm(BATCH, device=DEVICE),
        "block_size": BLOCK_SIZE,
    }
    cache = torch.randn(BATCH * TABLE * BLOCK_SIZE, FEATURES, device=DEVICE).to(dtype)
    written_rows = {
        "rows": torch.randn(BATCH, ROWS, FEATURES, device=DEVICE).to(dtype),
        "positions": torch.randint(TABLE * BLOCK_SIZE - 3, (BATCH,), device=DEVICE),
    }
    chosen = torch.randint(3, (BATCH, ROWS), device=DEVICE)
    chain = {
        "chosen": chosen,
        "token_ids": torch.where(torch.rand(BATCH, ROWS, device=DEVICE) < 0.8, chosen.roll(1, dims=1), 9),
        "draft_counts": torch.randint(ROWS, (BATCH,), device=DEVICE),
        "room": torch.randint(12, (BATCH,), device=DEVICE),
        "stop_ids": torch.tensor([2, 5], device=DEVICE),
    }
    pool = masked["mask_pool"]
    assert isinstance(pool, Tensor)
    scattered = {"rows": pool.flip(0), "places": torch.randperm(len(KINDS), device=DEVICE)}
    return [
        Call("masked_argmax", masked, {"out": _whole(rows)}),
        Call("masked_sample", masked | drawn, {"out": _whole(rows)}),
        Call("top_candidates", masked, {"out_ids": _whole(rows, 8), "out_logits": _numbers(rows, 8)}),
        Call("markov_logits", base | head, {"out": _numbers(BATCH, VOCAB)}),
        Call("draft_confidence", confidence | head, {"out": _numbers(BATCH)}, exact=False),
        Call(
            "verify_chain",
            chain,
            {"out_tokens": _whole(BATCH, ROWS), "out_counts": _whole(BATCH), "out_finished": _whole(BATCH)},
        ),
        Call("kv_write", paged | written_rows, {"cache": cache}),
        Call("kv_gather", paged | {"cache": cache.clone()}, {"out": torch.zeros_like(cache).view(BATCH, -1, FEATURES)}),
        Call("scatter_rows", scattered, {"pool": pool.clone()}),
    ]


def timings() -> None:
    """Medians of 20 launches of each operation and of its reference, outputs copied in both."""
    print(f"{'microseconds':<20}{'kernels':>10}{'torch':>10}   B = {BATCH}, V = {VOCAB:,}")
    for call in calls(torch.bfloat16):
        numbers = [_microseconds(partial(call.run, load_ops(name))) for name in ("cuda", "reference")]
        print(f"{call.name:<20}{numbers[0]:>10.0f}{numbers[1]:>10.0f}")


def _step(given: list[Call], buffers: list[dict[str, Tensor]]) -> Tensor:
    ops = load_ops("cuda")
    for call, written in zip(given, buffers, strict=True):
        getattr(ops, call.name)(**call.given, **written)
    return buffers[0]["out"]


def _passes(name: str, check: Callable[[], None]) -> bool:
    try:
        check()
    except Exception as error:
        print(f"FAILED  {name}: {type(error).__name__}: {error}", flush=True)
        return False
    print(f"passed  {name}", flush=True)
    return True


def _mask(kind: str) -> Tensor:
    density = {"all": 1.0, "sparse": 0.001, "dense": 0.9, "none": 0.0}[kind]
    bits = torch.zeros(words_for(VOCAB) * 32, dtype=torch.int64, device=DEVICE)
    bits[:REAL] = torch.rand(REAL, device=DEVICE) < density
    return (bits.view(-1, 32) << torch.arange(32, device=DEVICE)).sum(dim=1).to(torch.int32)


def _whole(*shape: int) -> Tensor:
    return torch.full(shape, 99, device=DEVICE)


def _numbers(*shape: int) -> Tensor:
    return torch.full(shape, 99.0, device=DEVICE)


def _microseconds(run: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(25):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(1e3 * float(start.elapsed_time(end)))
    return statistics.median(times[5:])


def _machine() -> str:
    where = torch.cuda.get_device_name() if ON_GPU else "no GPU, triton's interpreter"
    return f"torch {torch.__version__}, {where}"


if __name__ == "__main__":
    sys.exit(main())
