"""``heptagram gateway``: the OpenAI-compatible front of a Triton server, until Ctrl-C or SIGTERM.

Exit codes: 0 after an ordered end; 1 the address or a file cannot be used; 2 wrong usage.
"""

from __future__ import annotations

import asyncio
import sys

from heptagram_gateway.config import Config, ConfigError, read_config
from heptagram_gateway.serving import serve
from heptagram_telemetry.logs import configure
from heptagram_telemetry.settings import TelemetryError

EXIT_OK, EXIT_FAILED, EXIT_USAGE = range(3)


def command(argv: list[str]) -> int:
    """Run ``heptagram gateway``."""
    try:
        config = read_config(argv)
    except ConfigError as error:
        return _fail(str(error), EXIT_USAGE)
    configure(config.telemetry)
    try:
        asyncio.run(serve(config, ready=lambda url: _greet(config, url)))
    except TelemetryError as error:
        return _fail(str(error), EXIT_USAGE)
    except OSError as error:
        return _fail(f"{error.strerror or error} ({config.host}:{config.port})", EXIT_FAILED)
    return EXIT_OK


def _greet(config: Config, url: str) -> None:
    sys.stderr.write(f"heptagram gateway: {url}/v1 in front of {config.triton.netloc}\n")
    if config.exposed:
        sys.stderr.write("heptagram gateway: everybody who reaches this address may use it; --api-key asks for a key\n")


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"heptagram gateway: {message}\n")
    return code
