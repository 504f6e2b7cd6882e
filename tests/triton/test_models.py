"""The model classes around a scripted engine: what is answered at once, and what is closed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heptagram_backend.triton import generate, preprocess
from tests.server.probe import ProbePreprocessor, Script
from tests.server.probe_models import ProbeGenerate, ProbePreprocess
from tests.triton.fake_pb_utils import Request, Sender, TritonError, TritonModelException

_CONFIG = {"parameters": {"release": {"string_value": "release.yaml"}}}


def load(model: Any, folder: Path, *, config: object = _CONFIG) -> Any:
    (folder / "1").mkdir(exist_ok=True)
    (folder / "1" / "release.yaml").write_text("served_model_name: m\ncheckpoint: none\nformat: probe\n")
    model.initialize(
        {
            "model_config": json.dumps(config),
            "model_repository": str(folder),
            "model_version": "1",
            "model_name": "generate",
        }
    )
    return model


@pytest.fixture
def generating(tmp_path: Path) -> Iterator[Any]:
    model = load(ProbeGenerate(), tmp_path)
    yield model
    model.finalize()
    assert len(model._live) == 0


@pytest.fixture
def preparing(tmp_path: Path) -> Iterator[Any]:
    model = load(ProbePreprocess(), tmp_path)
    yield model
    model.finalize()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def finished(sender: Sender) -> bool:
    return bool(sender.sent) and sender.sent[-1][1]


def error_of(sender: Sender) -> TritonError:
    until(lambda: finished(sender))
    [(response, _)] = sender.sent
    assert response.error is not None
    return response.error


def planned(script: Script) -> Request:
    work = ProbePreprocessor().prepare(script.to_json().encode())
    return Request(plan=work.to_json(), prompt_ids=list(work.prompt_ids))


def test_a_request_streams_to_its_end(generating: Any) -> None:
    request = planned(Script(deltas=3, step_ms=1))
    assert generating.execute([request]) is None
    until(lambda: finished(request.sender))
    assert len(request.sender.sent) == 5


def test_a_ticket_ends_its_request_only(generating: Any) -> None:
    first, second = planned(Script(deltas=10_000)), planned(Script(deltas=5))
    generating.execute([first, second])
    until(lambda: first.sender.sent and second.sender.sent)
    ticket = json.loads(first.sender.sent[0][0].texts("ticket")[0])
    generating._watcher.cancel(ticket["ticket"])
    until(lambda: finished(first.sender) and finished(second.sender))
    assert '"cancelled"' in first.sender.sent[-1][0].texts("events")[-1]
    assert '"stop"' in second.sender.sent[-1][0].texts("events")[-1]


def test_a_client_that_left_is_noticed_by_polling(generating: Any) -> None:
    request = planned(Script(deltas=10_000))
    generating.execute([request])
    request.sender.cancelled = True
    until(lambda: finished(request.sender))
    assert '"cancelled"' in request.sender.sent[-1][0].texts("events")[-1]


def test_an_explicit_stop_is_answered_once_also_for_an_unknown_id(generating: Any) -> None:
    request = planned(Script(deltas=10_000))
    generating.execute([request])
    until(lambda: request.sender.sent)
    id = json.loads(request.sender.sent[0][0].texts("events")[0])["id"]
    for name in ("unknown", id, id):
        stop = Request(id=name, stop=[True])
        generating.execute([stop])
        [(response, final)] = stop.sender.sent
        assert final
        assert response.error is None
    until(lambda: finished(request.sender))


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "[missing] plan: "),
        ({"plan": "{}"}, "[missing] prompt_ids: "),
        ({"plan": "{}", "prompt_ids": [1]}, "[invalid_request] plan: "),
        ({"plan": b"\xff", "prompt_ids": [1]}, "[invalid_value] plan: not UTF-8 at byte 0"),
        ({"plan": ["a", "b"], "prompt_ids": [1]}, "[invalid_value] plan: has 2 elements"),
        ({"plan": ValueError("cut short"), "prompt_ids": [1]}, "[invalid_value] plan: cannot be read"),
        ({"stop": [True]}, "[missing] id: "),
    ],
)
def test_bad_inputs_of_generate_are_the_clients_fault(generating: Any, inputs: dict[str, Any], text: str) -> None:
    request = Request(**inputs)
    generating.execute([request])
    error = error_of(request.sender)
    assert error.text.startswith(text)
    assert error.code == TritonError.INVALID_ARG


@pytest.mark.parametrize(
    ("refuse", "status"),
    [("request", TritonError.INVALID_ARG), ("overloaded", TritonError.UNAVAILABLE), ("bug", TritonError.INTERNAL)],
)
def test_a_refusal_at_submit_leaves_nothing_behind_and_harms_no_other(
    generating: Any, refuse: str, status: int
) -> None:
    bad, good = planned(Script(refuse=refuse)), planned(Script(step_ms=1))
    generating.execute([bad, good])
    assert error_of(bad.sender).code == status
    until(lambda: finished(good.sender))
    until(lambda: len(generating._live) == 0)


def test_a_foreign_exception_is_logged_whole_and_told_briefly(preparing: Any, caplog: pytest.LogCaptureFixture) -> None:
    request = Request(request="bug")
    preparing.execute([request])
    error = error_of(request.sender)
    assert error.code == TritonError.INTERNAL
    assert error.text.startswith("[internal] -: preprocess failed (ZeroDivisionError)")
    assert "a bug" not in error.text
    assert "a bug in preprocess" in caplog.text


def test_preprocess_answers_each_request(preparing: Any) -> None:
    requests = [Request(request=Script(deltas=n).to_json()) for n in range(1, 20)] + [Request(), Request(request="[")]
    assert preparing.execute(requests) is None
    until(lambda: all(finished(request.sender) for request in requests))
    assert [response.error is None for request in requests for response, _ in request.sender.sent] == [True] * 19 + [
        False,
        False,
    ]
    assert error_of(requests[-2].sender).text.startswith("[missing] request: ")


def test_preprocess_refuses_what_it_has_no_room_for(preparing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "_room", threading.BoundedSemaphore(1))
    preparing._room.acquire()
    request = Request(request="{}")
    preparing.execute([request])
    assert error_of(request.sender).code == TritonError.UNAVAILABLE


@pytest.mark.parametrize("model", [generate.TritonPythonModel, preprocess.TritonPythonModel])
def test_a_version_that_does_not_fit_is_refused_with_a_readable_message(model: Any, tmp_path: Path) -> None:
    with pytest.raises(TritonModelException, match=r"parameter `release` must be `release\.yaml`"):
        load(model(), tmp_path, config={})
