"""SIGTERM under sixteen streams, eight over each front: what fits into the bounds finishes, the rest is told; status 0.

The gateway's requests have 30 s, then those that came over gRPC have 30 s more.
"""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from heptagram_backend.server.gateway_options import DRAIN_S
from heptagram_backend.server.launch import free_address, free_ports
from heptagram_backend.server.process import EXIT_TIMEOUT_S
from heptagram_backend.server.segments import SHARED_MEMORY
from tests.server.fronts import over_grpc, over_openai
from tests.server.launched import launched, write_launchable
from tests.server.probe import Script

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SHORT, LONG, ENDLESS = (Script(deltas=seconds * 25, step_ms=40) for seconds in (8, 40, 10_000))
EIGHT = [SHORT] * 4 + [LONG] * 2 + [ENDLESS] * 2
# For the processes to notice, to unload and to end, on a busy machine.
MARGIN_S = 20.0


def test_sixteen_streams_at_the_end(tmp_path: Path) -> None:
    address, [port] = free_address(), free_ports(1)
    fronts = {"gRPC": over_grpc(address.grpc_url), "OpenAI": over_openai(port)}
    with launched(write_launchable(tmp_path), address, openai_port=port) as launcher, ThreadPoolExecutor(16) as pool:
        below = [launcher.gateway, launcher.server, *launcher.stubs().values()]
        streams = {front: [pool.submit(ask, script) for script in EIGHT] for front, ask in fronts.items()}
        time.sleep(2)
        launcher.process.send_signal(signal.SIGTERM)
        assert launcher.process.wait(DRAIN_S + EXIT_TIMEOUT_S + MARGIN_S) == 0
        told = {front: [stream.result(timeout=MARGIN_S) for stream in eight] for front, eight in streams.items()}
    assert told["OpenAI"][:4] == [None] * 4
    assert set(told["OpenAI"][4:]) == {"told in the stream: the server is shutting down; try another one"}
    # The long ones outlast the gateway: Triton's own stop, which silences an ensemble, comes only behind them.
    assert told["gRPC"][:6] == [None] * 6
    assert all((fault or "").startswith("ConnectError: no connection to the server") for fault in told["gRPC"][6:])
    assert not psutil.wait_procs(below, timeout=5)[1]
    assert not list(SHARED_MEMORY.glob(f"heptagram-{launcher.process.pid}-*"))
