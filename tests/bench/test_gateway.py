"""One short run of the gateway's suite on the real server and the scripted engine."""

from __future__ import annotations

import pytest

from benchmarks.bench_gateway import ENGINE, ENSEMBLE, GATEWAY, Arrivals, scripted


def test_pieces_are_measured_from_their_sending() -> None:
    arrivals = Arrivals(1_000_000, [(3_000_000, "2500000 "), (5_000_000, "4600000 ")])
    run = arrivals.run()
    assert (run["first_ms"], run["way_ms"], run["piece_ms"]) == pytest.approx((2.0, 0.45, 2.0))


@pytest.mark.server
def test_all_three_arms_bring_every_piece() -> None:
    suite = scripted(1, pieces=3, step_ms=5)
    for runs in suite.data.values():
        assert list(runs) == [ENGINE, ENSEMBLE, GATEWAY]
    assert {run["pieces"] for runs in suite.data["paced"].values() for run in runs} == {3}
    assert "way of a piece" in suite.text
