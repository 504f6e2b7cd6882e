"""Requests on a gRPC stream that Triton refuses by itself. They get a server of their own.

Tritonserver 2.51 keeps a reference to the model for ever after each of these, whatever the model: it never unloads,
and an orderly stop takes the whole exit timeout. Nothing of ours runs in between, so nothing of ours can prevent it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from heptagram_wire.errors import parse_error
from heptagram_wire.events import Finish
from tests.server.probe import Script
from tests.server.repository import write_probes
from tests.server.served import MISFITS, Served
from tests.server_fixture import running_server

pytestmark = pytest.mark.server


def test_tritons_refusals_on_a_stream_say_what_is_wrong_and_harm_no_later_request(tmp_path: Path) -> None:
    with running_server(write_probes(tmp_path / "repository")) as process:
        served = Served(process)
        for pattern, inputs in MISFITS.items():
            with served.stream(*inputs) as stream:
                [received] = stream.rest()
            assert re.search(pattern, received.error or "")
            assert parse_error(received.error or "") is None
        assert served.settle()["requests_failed_total"] == 0
        with served.chat(Script().to_json()) as stream:
            assert isinstance(stream.rest()[-1].events[-1], Finish)
        process.stop(timeout_s=0.5)  # an orderly stop would wait 30 s for what leaked
