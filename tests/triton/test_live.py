"""The table of live requests as a state machine, with its integrity check as the invariant."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from heptagram_backend.triton.live import LiveRequests


class Client:
    def __init__(self) -> None:
        self.left = False

    def abandoned(self) -> bool:
        return self.left


class LiveMachine(RuleBasedStateMachine):
    tickets = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.live = LiveRequests()
        self.clients: dict[str, Client] = {}
        self.bound: dict[str, str] = {}
        self.cancelled: set[str] = set()
        self.number = 0

    @rule(target=tickets)
    def open(self) -> str:
        self.number += 1
        ticket = f"ticket-{self.number}"
        self.clients[ticket] = Client()
        self.live.open(ticket, self.clients[ticket])
        return ticket

    @rule(ticket=tickets)
    def bind(self, ticket: str) -> None:
        if ticket in self.bound:
            return
        tell = self.live.bind(ticket, f"id-{ticket}")
        assert tell == (ticket in self.cancelled and ticket in self.clients)
        if ticket in self.clients:
            self.bound[ticket] = f"id-{ticket}"

    @rule(ticket=tickets | st.just("never issued"))
    def claim(self, ticket: str) -> None:
        fresh = ticket in self.clients and ticket not in self.cancelled
        expected = self.bound.get(ticket) if fresh else None
        assert self.live.claim(ticket) == expected
        if fresh:
            self.cancelled.add(ticket)

    @rule(ticket=tickets)
    def close(self, ticket: str) -> None:
        self.live.close(ticket)
        self.clients.pop(ticket, None)
        self.bound.pop(ticket, None)

    @rule(ticket=tickets)
    def leave(self, ticket: str) -> None:
        if ticket in self.clients:
            self.clients[ticket].left = True

    @invariant()
    def sound(self) -> None:
        self.live.check()
        assert len(self.live) == len(self.clients)
        gone = [t for t, client in self.clients.items() if client.left and t not in self.cancelled]
        assert sorted(self.live.abandoned()) == sorted(gone)


LiveMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLiveRequests = LiveMachine.TestCase
