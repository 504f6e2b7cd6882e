"""The DSML markup of DeepSeek V4 and V4.1, in the one canonical form that is rendered, enforced and read.

One call with a string and a number, as V4 writes it behind the text of the answer; V4.1 has a blank before each tag's
name and another name for the block::

    \\n\\n<｜DSML｜tool_calls>\\n
    <｜DSML｜invoke name="get_weather">\\n
    <｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>\\n
    <｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\\n
    </｜DSML｜invoke>\\n
    </｜DSML｜tool_calls>

A string stands there as it is (``string="true"``), everything else as JSON. Calls and parameters are parted by one line
break; a call without parameters has one empty line in their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

DSML: Final = "｜DSML｜"
BOS: Final = "<｜begin▁of▁sentence｜>"
EOS: Final = "<｜end▁of▁sentence｜>"
USER: Final = "<｜User｜>"
ASSISTANT: Final = "<｜Assistant｜>"
REMINDER: Final = "<｜latest_reminder｜>"
THINK_BEGIN: Final = "<think>"
THINK_END: Final = "</think>"
RESULT_BEGIN: Final = "<tool_result>"
RESULT_END: Final = "</tool_result>"

BEFORE_BLOCK: Final = "\n\n"
SEPARATOR: Final = "\n"
AFTER_NAME: Final = '">\n'


@dataclass(frozen=True, slots=True)
class Dsml:
    """The tags of one version: what follows ``<｜DSML｜`` and ``</｜DSML｜``."""

    block: str
    invoke: str
    parameter: str

    @property
    def block_begin(self) -> str:
        """Without the line breaks around it: :data:`BEFORE_BLOCK` comes before it, :data:`SEPARATOR` behind it."""
        return f"<{DSML}{self.block}>"

    @property
    def block_end(self) -> str:
        return f"</{DSML}{self.block}>"

    @property
    def invoke_begin(self) -> str:
        """Up to the name, which :data:`AFTER_NAME` follows."""
        return f'<{DSML}{self.invoke} name="'

    @property
    def invoke_end(self) -> str:
        return f"</{DSML}{self.invoke}>"

    @property
    def parameter_begin(self) -> str:
        """Up to the name, which :meth:`before_value` follows."""
        return f'<{DSML}{self.parameter} name="'

    @property
    def parameter_end(self) -> str:
        return f"</{DSML}{self.parameter}>"

    @staticmethod
    def before_value(*, string: bool) -> str:
        return f'" string="{"true" if string else "false"}">'

    def parameter_text(self, name: str, value: str, *, string: bool) -> str:
        return f"{self.parameter_begin}{name}{self.before_value(string=string)}{value}{self.parameter_end}"

    def invoke_text(self, name: str, parameters: Iterable[str]) -> str:
        """A call; ``parameters`` are texts of :meth:`parameter_text`."""
        inner = SEPARATOR.join(parameters)
        return f"{self.invoke_begin}{name}{AFTER_NAME}{inner}{SEPARATOR}{self.invoke_end}"

    def block_text(self, calls: Iterable[str]) -> str:
        """The block with the blank line before it; ``calls`` are texts of :meth:`invoke_text`."""
        inner = SEPARATOR.join(calls)
        return f"{BEFORE_BLOCK}{self.block_begin}{SEPARATOR}{inner}{SEPARATOR}{self.block_end}"


V4: Final = Dsml("tool_calls", "invoke", "parameter")
V4_1: Final = Dsml(" calls", " invoke", " parameter")

UNWRITABLE: Final = '"<>' + "".join(map(chr, range(0x20))) + "\x7f"
_NAME_CHARACTERS: Final = 256
_UNNAMEABLE: Final = re.compile(f"[{re.escape(UNWRITABLE)}\ud800-\udfff]")
_RESULT_TAG: Final = re.compile(r"<(?=/?tool_result>)")


def can_name(name: str) -> bool:
    """Whether the markup can carry ``name``: it is written as it is between double quotes."""
    return bool(name) and not _UNNAMEABLE.search(name)


def name_fault(name: str) -> str | None:
    """Why a model cannot be made to write ``name``: the markup cannot carry it, or it would end there."""
    if can_name(name) and len(name) <= _NAME_CHARACTERS and DSML not in name:
        return None
    return (
        f"the name cannot be written in this model's markup; use 1 to {_NAME_CHARACTERS} characters without quotes, "
        "angle brackets and control characters"
    )


def without_result_tags(text: str) -> str:
    """Defuse result tags inside untrusted text: a user or a tool must not be able to forge the result of a call."""
    return _RESULT_TAG.sub("&lt;", text)
