"""The flags of ``heptagram serve``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heptagram_backend.server.arguments import parse_arguments
from heptagram_backend.server.process import Address
from heptagram_backend.server.repository import Overrides


def test_defaults_are_those_of_the_contract() -> None:
    options = parse_arguments([])
    assert options.address == Address(host="127.0.0.1", grpc_port=8001, http_port=8000, metrics_port=8002)
    assert (options.model, options.model_repository, options.openai_port, options.demo) == (None, None, 9000, False)
    assert options.access_log == "off"
    assert not options.overrides


def test_flags_become_values_of_the_release() -> None:
    flags = ["--model", "m", "--served-model-name", "n", "--max-model-len", "512", "--max-num-seqs", "2"]
    flags += ["--device", "cpu", "--generate-config", '{"max_tokens": 9, "temperature": 0}']
    flags += ["--speculative-config", '{"method": "none", "num_speculative_tokens": 0}', "--openai-port", "9001"]
    options = parse_arguments(flags)
    assert options.overrides == Overrides(
        release={"default_max_tokens": 9, "served_model_name": "n"},
        engine={
            "max_model_len": 512,
            "max_num_seqs": 2,
            "device": "cpu",
            "drafts": "none",
            "num_speculative_tokens": 0,
        },
    )
    assert options.openai_port == 9001


def test_the_format_goes_into_the_release() -> None:
    options = parse_arguments(["--model", "m", "--format", "deepseek_v4"])
    assert options.overrides == Overrides(release={"format": "deepseek_v4"})


def test_flags_of_the_scheduler_and_the_cache() -> None:
    flags = ["--max-num-batched-tokens", "256", "--long-prefill-token-threshold", "32", "--block-size", "16"]
    wanted = {"max_num_batched_tokens": 256, "long_prefill_token_threshold": 32, "block_size": 16}
    assert parse_arguments(flags).overrides.engine == wanted
    assert parse_arguments(["--quantization", "int8"]).overrides.engine == {"quantization": "int8"}
    assert parse_arguments(["--enable-prefix-caching"]).overrides.engine == {"enable_prefix_caching": True}
    assert parse_arguments(["--no-enable-prefix-caching"]).overrides.engine == {"enable_prefix_caching": False}


def test_the_method_of_verifying_sampled_drafts() -> None:
    wanted = {"rejection_sample_method": "probabilistic"}
    assert parse_arguments(["--speculative-config", json.dumps(wanted)]).overrides.engine == wanted


def test_how_many_drafts_are_verified() -> None:
    wanted = {"draft_width": "full", "dspark_confidence_threshold": 0.25}
    assert parse_arguments(["--speculative-config", json.dumps(wanted)]).overrides.engine == wanted


def test_a_demo_takes_free_ports_unless_told() -> None:
    options = parse_arguments(["--demo", "--http-port", "8123"])
    address = options.address
    assert address.http_port == 8123
    assert (address.grpc_port, address.metrics_port) != (8001, 8002)
    assert options.openai_port not in (None, 9000, address.grpc_port, address.metrics_port)


@pytest.mark.parametrize("flags", [[], ["--demo"]])
def test_port_0_is_no_gateway(flags: list[str]) -> None:
    assert parse_arguments([*flags, "--openai-port", "0"]).openai_port is None


def test_wildcard_hosts_are_reached_through_loopback() -> None:
    address = parse_arguments(["--host", "0.0.0.0"]).address
    assert (address.grpc_url, address.http_url) == ("127.0.0.1:8001", "127.0.0.1:8000")
    address = parse_arguments(["--host", "::"]).address
    assert (address.grpc_url, address.metrics_url) == ("[::1]:8001", "http://[::1]:8002/metrics")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--model", "m", "--format", "nope"], "choose from 'chatml_dsml', 'chatml_json'"),
        (["--format", "deepseek_v4"], "--format: belongs to a checkpoint of your own"),
        (["--adapter", "a"], "--adapter: belongs to a checkpoint of your own"),
        (["--model-repository", "b", "--format", "deepseek_v4"], "served as it is"),
        (["--model", "a", "--model-repository", "b"], "not allowed with"),
        (["--model-repository", "b", "--max-num-seqs", "2"], "served as it is"),
        (["--speculative-config", "{"], "--speculative-config: not JSON"),
        (["--speculative-config", "[]"], "must be a JSON object"),
        (["--speculative-config", '{"models": "x"}'], "unknown key 'models'; known are method"),
        (["--speculative-config", '{"model": "/nowhere"}'], "model: there is no folder '/nowhere'"),
        (["--speculative-config", '{"method": "x"}'], "method: there is no 'x'; it is auto or none"),
        (["--speculative-config", '{"rejection_sample_method": "x"}'], "must be one of strict, probabilistic"),
        (["--speculative-config", '{"draft_width": "x"}'], "draft_width must be one of auto, full"),
        (
            ["--speculative-config", '{"dspark_confidence_threshold": "auto"}'],
            "dspark_confidence_threshold must be 0 to 1",
        ),
        (["--speculative-config", '{"dspark_confidence_threshold": 2}'], "dspark_confidence_threshold must be 0 to 1"),
        (["--speculative-config", '{"num_speculative_tokens": 8}'], "0 to 7"),
        (["--speculative-config", '{"num_speculative_tokens": true}'], "0 to 7"),
        (["--generate-config", '{"temperature": 1}'], "temperature must be 0"),
        (["--generate-config", '{"max_tokens": 0}'], "at least 1"),
        (["--device", "tpu"], "invalid choice"),
        (["--quantization", "fp8"], "invalid choice"),
        (["--served-model-name", "a b"], "--served-model-name: must match"),
        (["--block-size", "big"], "invalid int value"),
    ],
)
def test_what_cannot_be_honoured_is_refused(flags: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_arguments(flags)
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


def test_paths_stay_as_given() -> None:
    assert parse_arguments(["--model-repository", "x/y"]).model_repository == Path("x/y")
