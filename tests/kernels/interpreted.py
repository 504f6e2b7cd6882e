"""Triton's kernels in its interpreter: ``test_ops.py`` runs this with TRITON_INTERPRET=1 from the start."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heptagram_kernels.ops import load_ops
from tests.kernels.ops_cases import NAMES, cases

if os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("set TRITON_INTERPRET=1; without it the kernels need a GPU")


# The interpreter is numpy, which warns where a device computes inf - inf or a wrapping product.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_kernels_equal_the_reference(name: str, data: st.DataObject) -> None:
    data.draw(cases(name)).check(load_ops("cuda"), load_ops("reference"))
