"""What operators start and watch: the files are valid, and ask for numbers and paths that there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from heptagram_gateway.metrics import Metrics
from heptagram_gateway.record import Record
from tests.packaging.alerting import MONITORING, expressions, selected

DOCKER = MONITORING.parent
KUBERNETES = list(yaml.safe_load_all((DOCKER / "kubernetes.yaml").read_text()))
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [each for each in KUBERNETES if each["kind"] == kind]
    return dict(found)


@pytest.mark.parametrize("expression", expressions())
def test_every_expression_reads_numbers_of_ours(expression: str) -> None:
    names = selected(expression)
    assert names
    assert all(name == "up" or name.startswith("heptagram_") for name in names)


def test_the_gateway_has_what_is_asked_of_it() -> None:
    metrics = Metrics()
    metrics.count(Record("1", "POST", endpoint="/v1/chat/completions", status=200, first_event_s=0.1))
    families = text_string_to_metric_families(metrics.render().decode())
    there = {sample.name for family in families for sample in family.samples}
    asked = {name for text in expressions() for name in selected(text) if name.startswith("heptagram_gateway_")}
    assert asked
    assert asked <= there


def test_every_rule_says_what_to_do() -> None:
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "action"}


@pytest.mark.parametrize("manifest", KUBERNETES, ids=lambda manifest: str(manifest["kind"]))
def test_the_manifests_are_valid(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.33", strict=True)


def test_a_pod_has_longer_to_stop_than_serve_takes() -> None:
    from heptagram_backend.server.process import EXIT_TIMEOUT_S

    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > EXIT_TIMEOUT_S + 30  # the gateway's own bound comes first
    server = next(each for each in pod["containers"] if each["name"] == "server")
    assert server["readinessProbe"]["httpGet"]["path"] == "/v2/models/chat/ready"
    assert {mount["mountPath"] for mount in server["volumeMounts"]} == {"/dev/shm"}


def test_only_the_gateway_is_offered_to_others() -> None:
    (port,) = of_kind("Service")["spec"]["ports"]
    assert port["targetPort"] == "openai"
    published = {name: service.get("ports", []) for name, service in COMPOSE["services"].items()}
    assert published["heptagram"] == []
    assert all(each.startswith("127.0.0.1:") for ports in published.values() for each in ports)


@pytest.mark.parametrize(
    "arguments",
    [
        *(service["command"] for service in COMPOSE["services"].values() if "command" in service),
        *(each["command"] for each in of_kind("Deployment")["spec"]["template"]["spec"]["containers"]),
    ],
    ids=" ".join,
)
def test_the_commands_are_commands_of_ours(arguments: list[str]) -> None:
    from heptagram_backend.server.arguments import parse_arguments
    from heptagram_gateway.config import read_config

    program, command, *rest = arguments
    assert program == ".venv/bin/heptagram"
    if command == "serve":
        assert parse_arguments(rest).openai_port is None
    else:
        assert command == "gateway"
        assert read_config(rest, {}).host == "0.0.0.0"


def test_the_files_that_are_mounted_are_there() -> None:
    mounted = [
        volume.split(":")[0] for service in COMPOSE["services"].values() for volume in service.get("volumes", [])
    ]
    assert len(mounted) == 5
    assert all((DOCKER / Path(each)).is_file() for each in mounted)
