"""A program that converts a GGUF file to a folder in Hugging Face layout: ``convert.py FILE FOLDER``.

It is run as a child so that its memory is given back and so that the caller never loads torch. The weights are stored
as bfloat16, in which these models were trained; its rounding is far below the error of four-bit blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from heptagram_backend.errors import HeptagramError


def convert(source: Path, folder: Path) -> None:
    """Write config, generation config, tokenizer with chat template, and bfloat16 safetensors to ``folder``."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    if sys.stderr.isatty():
        logging.enable_progress_bar()
    else:
        logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype="bfloat16", quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(folder)


def program(make: Callable[..., None]) -> int:
    """Run ``make SOURCE... FOLDER`` by this process's arguments; the last line of stdout tells what went wrong."""
    try:
        make(*map(Path, sys.argv[1:]))
    except HeptagramError as error:
        sys.stdout.write(f"{error}".replace("\n", " ") + "\n")
        return 1
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, NotImplementedError) as error:
        sys.stdout.write(f"{type(error).__name__}: {error}".replace("\n", " ") + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(program(convert))
