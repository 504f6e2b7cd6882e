"""Puts the fake in the place of ``triton_python_backend_utils`` before the glue is imported."""

from __future__ import annotations

import sys

from tests.triton import fake_pb_utils

sys.modules.setdefault("triton_python_backend_utils", fake_pb_utils)
