"""What was prepared for an operation on tensors of certain metadata, found again in one look-up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from torch import Tensor

Plan = TypeVar("Plan")


class PlanIndex(Generic[Plan]):
    """Plans by operation, and the shape, stride, dtype and device of each tensor.

    All plans are declared before the first look-up. One that is not there is a miss: it is counted, and the caller
    goes the slow way.
    """

    def __init__(self) -> None:
        self._plans: dict[Hashable, Plan] = {}
        self.misses: Counter[str] = Counter()

    def declare(self, operation: str, tensors: Sequence[Tensor], plan: Plan) -> None:
        """Raises:
        ValueError: there is a plan for these already.
        """
        key = _key(operation, tensors)
        if key in self._plans:
            raise ValueError(f"{operation}: declared twice for {_key('', tensors)[1:]}")
        self._plans[key] = plan

    def find(self, operation: str, tensors: Sequence[Tensor]) -> Plan | None:
        plan = self._plans.get(_key(operation, tensors))
        if plan is None:
            self.misses[operation] += 1
        return plan


def _key(operation: str, tensors: Sequence[Tensor]) -> tuple[Hashable, ...]:
    return (operation, *((tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in tensors))
