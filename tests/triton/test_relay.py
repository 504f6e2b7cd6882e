"""The relay passes events on, and sends a cancelled request's ticket home once. It never errs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from heptagram_backend.triton.cancel import CancelInbox
from heptagram_backend.triton.relay import TritonPythonModel
from tests.triton.fake_pb_utils import Request


@pytest.fixture
def inbox() -> Iterator[CancelInbox]:
    inbox = CancelInbox()
    yield inbox
    inbox.close()


@pytest.fixture
def relay() -> Iterator[TritonPythonModel]:
    model = TritonPythonModel()
    model.initialize({})
    yield model
    model.finalize()


def test_events_are_passed_on_in_order(relay: TritonPythonModel, inbox: CancelInbox) -> None:
    ticket = inbox.issue().to_json()
    responses = relay.execute([Request(events=["a", "ü"], ticket=ticket), Request(events=["c"], ticket=ticket)])
    assert [response.texts("events") for response in responses] == [["a", "ü"], ["c"]]
    assert inbox.receive(0.01) is None


def test_a_cancelled_request_sends_its_ticket_once_and_gets_an_empty_response(
    relay: TritonPythonModel, inbox: CancelInbox
) -> None:
    ticket = inbox.issue()
    for _ in range(3):
        [response] = relay.execute([Request(cancelled=True, events=["a"], ticket=ticket.to_json())])
        assert response.error is None
        assert not response.outputs
    assert inbox.receive(1.0) == ticket.ticket
    assert inbox.receive(0.01) is None


def test_a_request_is_asked_about_once_in_an_interval_and_whoever_has_left_each_time(
    relay: TritonPythonModel, inbox: CancelInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    ticket, other = (inbox.issue().to_json() for _ in range(2))

    def asked(**fields: Any) -> int:
        request = Request(events=["a"], **fields)
        relay.execute([request])
        return request.asked

    assert (asked(ticket=ticket), asked(ticket=ticket), asked(ticket=other)) == (1, 0, 1)
    now += 0.051
    assert (asked(ticket=ticket, cancelled=True), asked(ticket=ticket, cancelled=True)) == (1, 1)
    assert inbox.receive(1.0)


def test_a_ticket_that_could_not_be_sent_is_tried_again(relay: TritonPythonModel) -> None:
    closed = CancelInbox()
    gone = closed.issue()
    closed.close()
    for _ in range(2):
        [response] = relay.execute([Request(cancelled=True, events=["a"], ticket=gone.to_json())])
        assert response.error is None


@pytest.mark.parametrize("ticket", ["", "rubbish", b"\xff", '{"ticket": "a", "address": "elsewhere"}'])
def test_a_bad_ticket_is_ignored(relay: TritonPythonModel, ticket: str | bytes) -> None:
    [response] = relay.execute([Request(cancelled=True, events=["a"], ticket=ticket)])
    assert response.error is None


def test_missing_inputs_give_an_empty_response(relay: TritonPythonModel) -> None:
    responses = relay.execute([Request(), Request(cancelled=True)])
    assert [response.outputs for response in responses] == [{}, {}]


def test_what_is_remembered_is_bounded(relay: TritonPythonModel, inbox: CancelInbox) -> None:
    for _ in range(1100):
        relay.execute([Request(cancelled=True, ticket=inbox.issue().to_json())])
        assert inbox.receive(1.0)
        relay.execute([Request(ticket=inbox.issue().to_json())])
    assert (len(relay._sent), len(relay._asked)) == (1024, 1024)
