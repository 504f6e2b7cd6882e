"""The markup of Llama 3.1, 3.2 and 3.3, in the one canonical form that is rendered, enforced and read.

A call is a JSON object with ``name`` and ``parameters``, alone at the beginning of the answer or behind
``<|python_tag|>``. Meta's templates know one call a turn; several are parted by ``; ``, as the models write them and
other servers read them.
"""

from __future__ import annotations

from typing import Final

PYTHON_TAG: Final = "<|python_tag|>"
CONTROL_TOKENS: Final = (
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    PYTHON_TAG,
)
ARGUMENTS: Final = "parameters"
SEPARATOR: Final = ";"
BEFORE_NAME: Final = '{"name": '
BEFORE_ARGUMENTS: Final = f', "{ARGUMENTS}": '
AFTER_ARGUMENTS: Final = "}"
BETWEEN_CALLS: Final = f"{SEPARATOR} "
