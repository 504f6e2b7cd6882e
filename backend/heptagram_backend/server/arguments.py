"""The flags of ``heptagram serve``, parsed and checked once. A flag that cannot be honoured is refused."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heptagram_backend.drafts import fault_of_drafts
from heptagram_backend.formats import FORMATS
from heptagram_backend.release import DRAFT_WIDTHS, QUANTIZATIONS
from heptagram_backend.sampling import REJECTION_SAMPLE_METHODS
from heptagram_backend.server.gateway_options import MODEL_ID
from heptagram_backend.server.launch import free_ports
from heptagram_backend.server.process import Address
from heptagram_backend.server.repository import Overrides
from heptagram_telemetry.settings import Telemetry, TelemetryError, add_arguments, take_arguments

_DESCRIPTION = "Start tritonserver with the model repository, wait until it is ready, serve until Ctrl-C."
_PORTS = {"grpc": 8001, "http": 8000, "metrics": 8002, "openai": 9000}
_PORT_HELP = {"openai": "of the OpenAI-compatible gateway; 0 starts none; "}
_USAGE = "heptagram serve [--model-repository P | --model DIR_OR_GGUF] [options]"
_ENGINE_FLAGS = {
    "max_model_len": "tokens of prompt and answer",
    "max_num_seqs": "requests that run at once",
    "max_num_batched_tokens": "rows of a forward: 8 for each running request, the rest for prompts",
    "long_prefill_token_threshold": "most rows of one prompt in a forward that others share",
    "block_size": "rows of a cache block",
}


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What ``serve`` was asked for. At most one of ``model_repository`` and ``model`` is given.

    ``openai_port`` is None where no gateway is wanted.
    """

    model_repository: Path | None
    model: str | None
    overrides: Overrides
    address: Address
    openai_port: int | None
    control_key_file: Path | None
    access_log: str
    telemetry: Telemetry
    demo: bool


def parse_arguments(argv: list[str]) -> ServeOptions:
    """Parse the command line; argparse prints usage errors and leaves with status 2."""
    parser = _parser()
    values = parser.parse_args(argv)
    overrides = _overrides(parser, values)
    if values.model_repository and overrides:
        parser.error(
            "--model-repository is served as it is: put these values into its release.yaml files, or use --model"
        )
    for name in ("format", "adapter"):
        if getattr(values, name) and values.model is None:
            parser.error(f"--{name}: belongs to a checkpoint of your own; give it with --model")
    if values.served_model_name is not None and not MODEL_ID.fullmatch(values.served_model_name):
        parser.error(f"--served-model-name: must match {MODEL_ID.pattern}, as clients give it as their model")
    ports = _ports(values)
    return ServeOptions(
        model_repository=values.model_repository,
        model=values.model,
        overrides=overrides,
        address=Address(values.host, ports["grpc"], ports["http"], ports["metrics"]),
        openai_port=ports["openai"] or None,
        control_key_file=values.control_key_file,
        access_log=values.openai_access_log,
        telemetry=_telemetry(parser, values),
        demo=values.demo,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="heptagram serve", usage=_USAGE, description=_DESCRIPTION, allow_abbrev=False)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--model-repository", type=Path, metavar="P", help="a Triton model repository, served as it is")
    what.add_argument("--model", metavar="DIR_OR_GGUF", help="a checkpoint folder, a .gguf file or embedded:NAME")
    release = parser.add_argument_group("release", "written into release.yaml of a repository in the cache folder")
    release.add_argument(
        "--adapter", metavar="FOLDER", help="merge what `heptagram train-adapter` wrote into the weights of --model"
    )
    release.add_argument("--served-model-name", metavar="N", help="a further model id of the OpenAI API")
    release.add_argument(
        "--format",
        choices=sorted(FORMATS),
        help="how the model of --model writes prompts and calls (default: chatml_json; embedded models know theirs)",
    )
    for name, text in _ENGINE_FLAGS.items():
        release.add_argument(_flag(name), type=int, metavar="N", help=text)
    release.add_argument("--speculative-config", metavar="JSON", help='{"method": "auto", "num_speculative_tokens": 7}')
    release.add_argument("--generate-config", metavar="JSON", help='defaults of a request: {"max_tokens": 2048}')
    release.add_argument("--device", choices=("cpu", "cuda", "npu"))
    release.add_argument(
        "--quantization", choices=QUANTIZATIONS, help="of the linear layers on the CPU (default: as the checkpoint is)"
    )
    release.add_argument(
        "--enable-prefix-caching",
        action=argparse.BooleanOptionalAction,
        help="share the cache blocks of equal prompt beginnings (default: yes)",
    )
    where = parser.add_argument_group("addresses")
    where.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    for name, port in _PORTS.items():
        about = f"{_PORT_HELP.get(name, '')}default: {port}, or a free one for --demo"
        where.add_argument(f"--{name}-port", type=int, metavar="PORT", help=about)
    where.add_argument(
        "--openai-access-log", default="off", metavar="FILE", help="requests of the gateway as JSON lines; default: off"
    )
    where.add_argument(
        "--control-key-file",
        type=Path,
        metavar="FILE",
        help="holds the key that Triton's model control asks for; default: a new one, which `heptagram repo` finds",
    )
    add_arguments(parser)
    parser.add_argument("--demo", action="store_true", help="run `heptagram demo` when ready, then stop")
    return parser


def _telemetry(parser: argparse.ArgumentParser, values: argparse.Namespace) -> Telemetry:
    try:
        return take_arguments(vars(values))
    except TelemetryError as error:
        parser.error(str(error))


def _ports(values: argparse.Namespace) -> dict[str, int]:
    unset = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True)) if values.demo else _PORTS
    given = {name: getattr(values, f"{name}_port") for name in _PORTS}
    return {name: unset[name] if port is None else port for name, port in given.items()}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _overrides(parser: argparse.ArgumentParser, values: argparse.Namespace) -> Overrides:
    names = (*_ENGINE_FLAGS, "enable_prefix_caching")
    engine = {name: getattr(values, name) for name in names if getattr(values, name) is not None}
    engine |= {name: given for name in ("device", "quantization") if (given := getattr(values, name))}
    engine |= _speculative(parser, values.speculative_config)
    release = _generation(parser, values.generate_config)
    names = ("served_model_name", "format", "adapter")
    release |= {name: given for name in names if (given := getattr(values, name))}
    return Overrides(release=release, engine=engine)


def _speculative(parser: argparse.ArgumentParser, text: str | None) -> dict[str, Any]:
    """``method`` names the drafts, ``model`` the drafter's folder, ``num_speculative_tokens`` the number of drafts,
    ``rejection_sample_method`` how those of sampled answers are verified (vLLM's keys). ``draft_width`` and
    ``dspark_confidence_threshold`` are the engine's own."""
    known = (
        "method",
        "model",
        "num_speculative_tokens",
        "rejection_sample_method",
        "draft_width",
        "dspark_confidence_threshold",
    )
    given = _json_object(parser, "--speculative-config", text, known=known)
    engine: dict[str, Any] = {}
    if "method" in given:
        fault = fault_of_drafts(str(given["method"]))
        if fault:
            parser.error(f"--speculative-config: method: {fault}")
        engine["drafts"] = given["method"]
    if "model" in given:
        if not isinstance(given["model"], str) or not Path(given["model"]).expanduser().is_dir():
            parser.error(f"--speculative-config: model: there is no folder {given['model']!r}; give a DSpark drafter's")
        engine["drafter"] = str(Path(given["model"]).expanduser().absolute())
    if "num_speculative_tokens" in given:
        count = given["num_speculative_tokens"]
        if type(count) is not int or not 0 <= count <= 7:
            parser.error("--speculative-config: num_speculative_tokens must be 0 to 7")
        engine["num_speculative_tokens"] = count
    if "rejection_sample_method" in given:
        if given["rejection_sample_method"] not in REJECTION_SAMPLE_METHODS:
            parser.error(
                f"--speculative-config: rejection_sample_method must be one of {', '.join(REJECTION_SAMPLE_METHODS)}"
            )
        engine["rejection_sample_method"] = given["rejection_sample_method"]
    if "draft_width" in given:
        if given["draft_width"] not in DRAFT_WIDTHS:
            parser.error(f"--speculative-config: draft_width must be one of {', '.join(DRAFT_WIDTHS)}")
        engine["draft_width"] = given["draft_width"]
    if "dspark_confidence_threshold" in given:
        threshold = given["dspark_confidence_threshold"]
        if type(threshold) not in (int, float) or not 0 <= threshold <= 1:
            parser.error("--speculative-config: dspark_confidence_threshold must be 0 to 1")
        engine["dspark_confidence_threshold"] = threshold
    return engine


def _generation(parser: argparse.ArgumentParser, text: str | None) -> dict[str, Any]:
    given = _json_object(parser, "--generate-config", text, known=("max_tokens", "temperature"))
    if given.get("temperature", 0) != 0:
        parser.error("--generate-config: temperature must be 0, each request sends its own")
    if "max_tokens" not in given:
        return {}
    if type(given["max_tokens"]) is not int or given["max_tokens"] < 1:
        parser.error("--generate-config: max_tokens must be at least 1")
    return {"default_max_tokens": given["max_tokens"]}


def _json_object(
    parser: argparse.ArgumentParser, flag: str, text: str | None, *, known: tuple[str, ...]
) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        parser.error(f"{flag}: not JSON ({error})")
    if not isinstance(value, dict):
        parser.error(f"{flag}: must be a JSON object")
    unknown = sorted(set(value) - set(known))
    if unknown:
        parser.error(f"{flag}: unknown key {unknown[0]!r}; known are {', '.join(known)}")
    return value
