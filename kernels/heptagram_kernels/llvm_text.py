"""A function in LLVM's text form, written line by line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Function:
    """Returns nothing. Values are named in the order in which they come; variables lie in the entry block."""

    def __init__(self, signature: str) -> None:
        self._signature = signature
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._count = 0

    def let(self, expression: str) -> str:
        name = self._name()
        self._lines.append(f"{name} = {expression}")
        return name

    def do(self, statement: str) -> None:
        self._lines.append(statement)

    def variable(self, kind: str, value: str) -> str:
        """A place in memory; LLVM makes a register of it."""
        name = self._name()
        self._entry.append(f"{name} = alloca {kind}")
        self.do(f"store {kind} {value}, ptr {name}")
        return name

    def at(self, base: str, kind: str, index: str) -> str:
        return self.let(f"getelementptr {kind}, ptr {base}, i64 {index}")

    def load(self, kind: str, pointer: str) -> str:
        return self.let(f"load {kind}, ptr {pointer}, align {1 if kind.startswith('<') else 2}")

    def number(self, operation: str, left: str, right: str) -> str:
        return self.let(f"{operation} i64 {left}, {right}")

    def splat(self, scalar: str, value: str, kind: str) -> str:
        count = kind[1:].split()[0]
        one = self.let(f"insertelement {kind} poison, {scalar} {value}, i64 0")
        return self.let(f"shufflevector {kind} {one}, {kind} poison, <{count} x i32> zeroinitializer")

    @contextmanager
    def loop(self, start: str, stop: str, step: int = 1) -> Iterator[str]:
        """The lines in between for ``start``, ``start + step`` ... below ``stop``."""
        counter = self.variable("i64", start)
        label = self._name()[1:]
        self.do(f"br label %{label}.head\n{label}.head:")
        value = self.let(f"load i64, ptr {counter}")
        more = self.let(f"icmp slt i64 {value}, {stop}")
        self.do(f"br i1 {more}, label %{label}.body, label %{label}.end\n{label}.body:")
        yield value
        self.do(f"store i64 {self.number('add', value, str(step))}, ptr {counter}")
        self.do(f"br label %{label}.head\n{label}.end:")

    def __str__(self) -> str:
        return "\n".join([f"define {self._signature} {{", *self._entry, *self._lines, "ret void", "}"])

    def _name(self) -> str:
        self._count += 1
        return f"%v{self._count}"
