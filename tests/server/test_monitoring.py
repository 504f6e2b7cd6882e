"""What the alert rules and the dashboard ask of the server is in its real metrics."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.packaging.alerting import expressions, selected
from tests.server.served import Served

pytestmark = pytest.mark.server


def test_the_server_has_what_is_asked_of_it(counted: Served) -> None:
    with urllib.request.urlopen(counted.process.address.metrics_url, timeout=10) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    samples = {sample.name: sample.labels for family in families for sample in family.samples}
    asked = {name for text in expressions() for name in selected(text)} - {"up"}
    ours = {name for name in asked if not name.startswith("heptagram_gateway_")}
    assert len(ours) > 40
    assert ours <= set(samples)
    assert all("version" in samples[name] for name in ours)
