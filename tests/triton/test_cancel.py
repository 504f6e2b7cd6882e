"""The datagram path from relay to generate, over real sockets."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from heptagram_backend.triton.cancel import CancelInbox, CancelOutbox, Ticket


def test_a_ticket_travels_home() -> None:
    inbox, outbox = CancelInbox(), CancelOutbox()
    ticket = Ticket.from_json(inbox.issue().to_json())
    assert ticket is not None
    assert outbox.send(ticket)
    assert inbox.receive(1.0) == ticket.ticket
    outbox.close()
    inbox.close()


def test_receive_gives_up_after_its_timeout() -> None:
    inbox = CancelInbox()
    began = time.monotonic()
    assert inbox.receive(0.02) is None
    assert time.monotonic() - began < 1
    inbox.close()


def test_sending_to_a_closed_inbox_fails_quietly() -> None:
    inbox, outbox = CancelInbox(), CancelOutbox()
    ticket = inbox.issue()
    inbox.close()
    assert not outbox.send(ticket)
    outbox.close()


def test_a_full_inbox_never_blocks_the_relay_and_a_later_try_succeeds() -> None:
    inbox, outbox = CancelInbox(), CancelOutbox()
    sent = 0
    began = time.monotonic()
    while outbox.send(inbox.issue()):
        sent += 1
        assert sent < 1_000_000
    assert time.monotonic() - began < 30
    for _ in range(sent):
        assert inbox.receive(1.0)
    assert outbox.send(inbox.issue())
    outbox.close()
    inbox.close()


def test_addresses_are_private_and_leave_nothing_on_disk() -> None:
    first, second = CancelInbox(), CancelInbox()
    assert first.address != second.address
    assert f"@{first.address}" in Path("/proc/net/unix").read_text()
    assert first.issue() != first.issue()
    first.close()
    assert f"@{first.address}" not in Path("/proc/net/unix").read_text()
    second.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"ticket": "a"}',
        '{"ticket": 1, "address": "heptagram-cancel-00000000000000000000000000000000"}',
        '{"ticket": "a", "address": "/tmp/another-service.sock"}',
        '{"ticket": "a", "address": "heptagram-cancel-0000000000000000000000000000000g"}',
        '{"ticket": "a", "address": "heptagram-cancel-00000000000000000000000000000000\\n"}',
    ],
)
def test_what_is_no_ticket_of_ours_is_not_sent_anywhere(text: str) -> None:
    assert Ticket.from_json(text) is None
