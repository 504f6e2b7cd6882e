"""Which grammar library this machine has. Imports none: ordinary requests are served without one."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import NoReturn

from heptagram_backend.constraint import ConstraintSpec, GrammarFactory
from heptagram_backend.errors import RequestError
from heptagram_wire import errors as codes


def load_grammar_factory(
    token_bytes: Sequence[bytes | None],
    *,
    vocab_width: int,
    stop_token_ids: Sequence[int],
    max_compile_threads: int = 1,
    cache_limit_bytes: int = 256 << 20,
) -> GrammarFactory:
    """The factory of the installed grammar library, or one that refuses every constraint."""
    if find_spec("xgrammar") is None:
        return UnavailableFactory()
    from heptagram_backend.xgrammar_impl import XGrammarFactory

    return XGrammarFactory(token_bytes, vocab_width, stop_token_ids, max_compile_threads, cache_limit_bytes)


class UnavailableFactory:
    """Stands in where XGrammar is missing: constrained requests are refused by name, the others run."""

    live = 0
    vocab_width = None

    def compile(self, spec: ConstraintSpec) -> NoReturn:  # noqa: ARG002
        raise RequestError(
            "this server cannot constrain its output: xgrammar is not installed; leave out strict tools, "
            "tool_choice and response_format, or install heptagram[backend]",
            code=codes.CONSTRAINT_UNAVAILABLE,
        )

    def holds(self, spec: ConstraintSpec) -> NoReturn:
        self.compile(spec)

    def forget(self) -> None:
        """There is nothing."""

    def matcher(self, spec: ConstraintSpec) -> NoReturn:
        self.compile(spec)
