"""The embedded default: what the conversion kept of the GGUF file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import gguf
import pytest
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from heptagram_backend.checkpoint import EMBEDDED, resolve

pytestmark = pytest.mark.server

NAME = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def folder() -> Path:
    return resolve(f"embedded:{NAME}")


def test_every_token_has_the_id_of_the_gguf(folder: Path) -> None:
    spec = importlib.util.find_spec(EMBEDDED[NAME].package)
    assert spec is not None
    assert spec.submodule_search_locations
    reader = gguf.GGUFReader(Path(spec.submodule_search_locations[0]) / EMBEDDED[NAME].file)
    words = reader.fields["tokenizer.ggml.tokens"].contents()
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab(with_added_tokens=True)
    assert len(words) == len(vocabulary) == 49_152
    assert [vocabulary[word] for word in words] == list(range(49_152))


def test_it_answers(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.generation_config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**prompt, max_new_tokens=16, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"
