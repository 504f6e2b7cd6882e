"""The shipped model repository: complete configs, one import line, nothing that should not be there."""

from __future__ import annotations

import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2

from heptagram_backend.release import Release
from heptagram_wire import tensors as names

# It ships no type information.
text_format: Any = import_module("google.protobuf.text_format")

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = ROOT / "model_repository"
ENSEMBLES = (names.CHAT, names.COMPLETIONS)
STEPS = (names.PREPROCESS, names.GENERATE, names.RELAY)
ASKED = {*names.COMPLETION_TEXTS, *names.COMPLETION_FLAGS, *names.COMPLETION_NUMBERS, names.STOP_WORDS}
ANSWERED = set(names.COMPLETION_OUTPUTS)
FIELDS = {
    names.PREPROCESS: ({names.REQUEST} | ASKED, {names.PROMPT_IDS, names.PLAN}),
    names.GENERATE: ({names.PROMPT_IDS, names.PLAN, names.ID, names.STOP}, {names.EVENTS, names.TICKET} | ANSWERED),
    names.RELAY: ({names.EVENTS, names.TICKET} | ANSWERED, {names.EVENTS} | ANSWERED),
    names.CHAT: ({names.REQUEST}, {names.EVENTS}),
    names.COMPLETIONS: (ASKED, ANSWERED),
}


def config(model: str) -> Any:
    return text_format.Parse((REPOSITORY / model / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


@pytest.mark.parametrize("model", [*STEPS, *ENSEMBLES])
def test_each_config_is_complete(model: str) -> None:
    parsed = config(model)
    inputs, outputs = FIELDS[model]
    assert parsed.name == model
    assert parsed.max_batch_size == 0
    assert {each.name for each in parsed.input} == inputs
    assert {each.name for each in parsed.output} == outputs
    assert all(each.optional for each in parsed.input)
    assert not parsed.HasField("dynamic_batching")
    assert parsed.model_transaction_policy.decoupled == (model == names.GENERATE)


@pytest.mark.parametrize("model", STEPS)
def test_each_step_is_one_instance_on_the_cpu_and_one_import_line(model: str) -> None:
    [group] = config(model).instance_group
    assert (group.count, group.kind) == (1, model_config_pb2.ModelInstanceGroup.KIND_CPU)
    line = f"from heptagram_backend.triton.{model} import TritonPythonModel as TritonPythonModel\n"
    assert (REPOSITORY / model / "1" / "model.py").read_text() == line


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_each_ensemble_pins_its_steps(ensemble: str) -> None:
    steps = config(ensemble).ensemble_scheduling.step
    assert [(step.model_name, step.model_version) for step in steps] == [(name, 1) for name in STEPS]


def test_the_tensors_of_a_completion_have_the_same_types_in_each_model() -> None:
    """As the contract lists them; the loader compares types, but not what is optional."""
    types = {names.MAX_TOKENS: "INT32", names.TOP_K: "INT32", names.SEED: "UINT64"}
    types |= dict.fromkeys((names.TEMPERATURE, names.TOP_P, names.ACCEPTANCE_RATE, names.CUMULATIVE_LOGPROB), "FP32")
    types |= dict.fromkeys(
        (*names.COMPLETION_TEXTS, names.STOP_WORDS, names.TEXT_OUTPUT, names.FINISH_REASON, names.LOGPROBS), "STRING"
    )
    types |= dict.fromkeys(names.COMPLETION_FLAGS, "BOOL")
    for model in (*STEPS, names.COMPLETIONS):
        for each in (*config(model).input, *config(model).output):
            if each.name in ASKED | ANSWERED:
                assert model_config_pb2.DataType.Name(each.data_type) == f"TYPE_{types.get(each.name, 'UINT32')}"
                several = each.name in ANSWERED | {names.STOP_WORDS}
                assert list(each.dims) == [-1 if several else 1]


@pytest.mark.parametrize("model", [names.PREPROCESS, names.GENERATE])
def test_the_release_is_the_only_configuration_of_a_version(model: str) -> None:
    parameters = config(model).parameters
    assert {key: value.string_value for key, value in parameters.items()} == {"release": "release.yaml"}
    release = Release.load(REPOSITORY / model / "1")
    assert release.served_model_name == "SmolLM2-135M-Instruct"
    assert release.checkpoint == "embedded:smollm2-135m-instruct"
    assert (release.vocabulary or "").startswith("sha256:")


def test_both_releases_are_of_one_rollout() -> None:
    prepares, generates = (Release.load(REPOSITORY / model / "1") for model in (names.PREPROCESS, names.GENERATE))
    assert prepares.vocabulary == generates.vocabulary
    assert prepares.engine == generates.engine


def test_the_recorded_layout_is_the_installed_one() -> None:
    from heptagram_kernels.layout import K7_LAYOUT

    K7_LAYOUT.check(Release.load(REPOSITORY / names.GENERATE / "1").k7_layout)


def test_version_folders_hold_no_byte_code() -> None:
    """A ``__pycache__`` changes the folder's time, and Triton then reloads a version that has not changed."""
    assert not list(REPOSITORY.rglob("__pycache__"))
    assert not list(REPOSITORY.rglob("*.pyc"))


def test_git_and_packages_leave_byte_code_out() -> None:
    probe = REPOSITORY / names.GENERATE / "1" / "__pycache__" / "model.cpython-311.pyc"
    ignored = subprocess.run(["git", "check-ignore", "-q", str(probe)], cwd=ROOT, check=False)
    if ignored.returncode == 128:
        pytest.skip("not a git checkout")
    assert ignored.returncode == 0
