"""Every Triton kernel compiles to machine code for Hopper, with no GPU here: what the interpreter cannot show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]  # noqa: E402
from triton.compiler import ASTSource  # type: ignore[import-untyped]  # noqa: E402

from heptagram_kernels import triton_rows, triton_sample, triton_step  # noqa: E402

_HALF, _WHOLE, _WORDS, _SINGLE, _DOUBLE = "*bf16", "*i64", "*i32", "*fp32", "*fp64"
# Arguments that are not 32-bit integers, by name.
_TENSORS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("logits", "base", "hidden", "w1", "w2", "cache"), _HALF),
    **dict.fromkeys(("mask_rows", "partial", "out_ids", "best", "starts", "tokens", "chosen", "token_ids"), _WHOLE),
    **dict.fromkeys(("draft_counts", "room", "stop_ids", "out_tokens", "out_counts", "out_finished"), _WHOLE),
    **dict.fromkeys(("previous", "tables", "slots", "positions", "places"), _WHOLE),
    **dict.fromkeys(("weight", "bias", "out_logits", "out"), _SINGLE),
    **dict.fromkeys(("temperature", "scores"), _DOUBLE),
    "pool": _WORDS,
}
_KERNELS: Final[Mapping[str, tuple[Any, Mapping[str, Any], Mapping[str, str]]]] = {
    "argmax": (triton_rows.best_of_blocks, {"COUNT": 1, "NAN_WINS": True, "BLOCK": 4096}, {}),
    "candidates": (triton_rows.best_of_blocks, {"COUNT": 8, "NAN_WINS": False, "BLOCK": 4096}, {}),
    "best of rows": (triton_rows.best_of_rows, {"COUNT": 8, "WITH_LOGITS": True, "SIZE": 256}, {}),
    "draw": (triton_sample.draw_of_blocks, {"BLOCK": 1024}, {}),
    "best draw": (triton_sample.draw_of_rows, {"SIZE": 128}, {"out": _WHOLE}),
    "chain": (triton_step.chain, {"ROWS": 8}, {}),
    "markov": (triton_step.markov, {"PRECISION": "tf32", "SEQUENCES": 16, "BLOCK": 64, "CHUNK": 32}, {}),
    "confidence": (triton_step.confidence, {"BLOCK": 1024}, {}),
    "write": (triton_step.cache_rows, {"WRITE": True, "BLOCK": 1024}, {"rows": _HALF}),
    "gather": (triton_step.cache_rows, {"WRITE": False, "BLOCK": 1024}, {"rows": _HALF}),
    "mask rows": (triton_step.pool_rows, {"BLOCK": 1024}, {"rows": _WORDS}),
}


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("name", _KERNELS)
def test_kernels_compile(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel, constants, tensors = _KERNELS[name]
    names = kernel.arg_names
    types = {argument: {**_TENSORS, **tensors}.get(argument, "i32") for argument in names}
    source = ASTSource(
        fn=kernel,
        signature=types | dict.fromkeys(constants, "constexpr"),
        constexprs={(names.index(constant),): value for constant, value in constants.items()},
    )
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]
