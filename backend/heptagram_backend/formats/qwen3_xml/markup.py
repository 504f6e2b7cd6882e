"""The markup of Qwen3-Coder and later Qwen models, in the one canonical form that is rendered, enforced and read.

One call with a string and a number::

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Oslo
    </parameter>
    <parameter=days>
    3
    </parameter>
    </function>
    </tool_call>

A string stands there as it is, everything else as JSON; nothing tells the two apart but the declared type. Calls are
parted by one line break. A value ends at the first :data:`VALUE_END`, which JSON never holds; a raw string holds no
:data:`END_TAG` either, so the model cannot leave it by a tag without its line break.
"""

from __future__ import annotations

import re
from typing import Final

from heptagram_backend.formats.hermes.markup import CALL_BEGIN, CALL_END

END_TAG: Final = "</parameter>"
FUNCTION_BEGIN: Final = "<function="
FUNCTION_END: Final = "</function>"
PARAMETER_BEGIN: Final = "<parameter="
NAME_END: Final = ">"
VALUE_END: Final = f"\n{END_TAG}"
BEFORE_NAME: Final = f"{CALL_BEGIN}\n{FUNCTION_BEGIN}"
AFTER_NAME: Final = f"{NAME_END}\n"
AFTER_VALUE: Final = f"{VALUE_END}\n"
AFTER_PARAMETERS: Final = f"{FUNCTION_END}\n{CALL_END}"
BETWEEN_CALLS: Final = "\n"

UNWRITABLE: Final = "<>" + "".join(map(chr, range(0x20))) + "\x7f"
_NAME_CHARACTERS: Final = 256
_NO_NAME: Final = re.compile(f"[{re.escape(UNWRITABLE)}\ud800-\udfff]")


def can_name(name: str) -> bool:
    """Whether the markup can carry ``name``, which is written as it is."""
    return 0 < len(name) <= _NAME_CHARACTERS and not _NO_NAME.search(name)


def name_fault(name: str) -> str | None:
    """Why the markup cannot carry ``name``; ``None`` when it can."""
    if can_name(name):
        return None
    return (
        f"the name cannot be written in this model's markup; use 1 to {_NAME_CHARACTERS} characters without angle "
        "brackets and control characters"
    )


def without_end_tags(text: str) -> str:
    """Defuse the end of a value inside a value of the history."""
    return text.replace(END_TAG, f"&lt;{END_TAG[1:]}")
