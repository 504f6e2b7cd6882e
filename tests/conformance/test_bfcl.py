"""The BFCL sample is fixed, and what it declares is JSON Schema."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from jsonschema import Draft202012Validator

from tests.conformance import bfcl

pytestmark = pytest.mark.skipif(
    bfcl.data_folder() is None, reason=f"BFCL v4 is not installed; pip install --no-deps {bfcl.REQUIREMENT}"
)


def test_the_sample_is_fixed_and_even() -> None:
    prompts = bfcl.sample(100)
    assert prompts == bfcl.sample(100)
    assert Counter(prompt.category for prompt in prompts) == dict.fromkeys(bfcl.CATEGORIES, 25)
    assert len({prompt.id for prompt in prompts}) == 100
    first = ["simple_python_223", "multiple_193", "parallel_27", "parallel_multiple_24"]
    assert [prompt.id for prompt in prompts[:4]] == first


def test_every_prompt_declares_legal_tools() -> None:
    prompts = bfcl.sample(4 * 200)
    assert len(prompts) == 800
    for prompt in prompts:
        names = [tool["function"]["name"] for tool in prompt.tools]
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
        for tool in prompt.tools:
            Draft202012Validator.check_schema(tool["function"]["parameters"])


def test_types_of_the_corpus_become_types_of_json_schema() -> None:
    mapped = bfcl.to_json_schema(
        {
            "type": "dict",
            "properties": {
                "at": {"type": "tuple", "items": {"type": "float"}, "description": "where"},
                "data": {"type": "any", "optional": True},
                "unit": {"type": "string", "enum": ["m", "ft"], "default": "m"},
            },
            "required": ["at"],
        }
    )
    assert mapped == {
        "type": "object",
        "required": ["at"],
        "properties": {
            "at": {"type": "array", "description": "where", "items": {"type": "number"}},
            "data": {},
            "unit": {"type": "string", "enum": ["m", "ft"], "default": "m"},
        },
    }
