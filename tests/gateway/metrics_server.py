"""Triton's metrics port, played."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Two versions of one model, and what else Triton says.
SAMPLES = """\
# HELP heptagram_num_requests_running Requests that hold a slot
# TYPE heptagram_num_requests_running gauge
heptagram_num_requests_running{model="generate",version="1",pid="7"} 2
heptagram_num_requests_running{model="generate",version="2",pid="8"} 1
heptagram_slots_total{model="generate",version="1",pid="7"} 8
heptagram_generation_tokens_total{model="generate",version="1",pid="7"} 1.2e3
nv_inference_count{model="chat",version="1"} 5
"""


class MetricsServer:
    """``text`` is its answer, ``status`` goes with it; ``asked`` counts the questions."""

    def __init__(self) -> None:
        self.text = SAMPLES
        self.status = 200
        self.asked = 0
        self.url = ""


@contextmanager
def metrics_server() -> Iterator[MetricsServer]:
    here = MetricsServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here.asked += 1
            self.send_response(here.status)
            self.end_headers()
            self.wfile.write(here.text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is said."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        here.url = f"http://127.0.0.1:{server.server_port}/metrics"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield here
        server.shutdown()
        thread.join()
