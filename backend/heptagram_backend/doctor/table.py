"""Findings as a table for people, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from heptagram_backend.doctor.finding import Finding

_COLOURS: Final = {"ok": "\x1b[32m", "note": "\x1b[33m", "missing": "\x1b[31m"}
_PLAIN: Final = "\x1b[0m"


def as_table(findings: Sequence[Finding], *, colours: bool) -> str:
    """One line for each, columns aligned; what to do stands below the line it belongs to."""
    names = max(len(finding.name) for finding in findings)
    states = max(len(state) for state in _COLOURS)
    lines = []
    for finding in findings:
        state = f"{finding.state:<{states}}"
        shown = f"{_COLOURS[finding.state]}{state}{_PLAIN}" if colours else state
        lines.append(f"{finding.name:<{names}}  {shown}  {finding.found}")
        if finding.advice:
            lines.append(f"{'':<{names}}  {'':<{states}}  -> {finding.advice}")
    return "\n".join([*lines, "", conclusion(findings)]) + "\n"


def conclusion(findings: Sequence[Finding]) -> str:
    missing = [finding.name for finding in findings if finding.state == "missing"]
    if missing:
        return f"Missing or wrong: {', '.join(missing)}."
    return "All that is needed is here: `heptagram serve` starts the server."


def as_json(findings: Sequence[Finding]) -> str:
    """``{"healthy": bool, "findings": [{"name", "state", "found", "advice"}, ...]}``."""
    body: dict[str, Any] = {"healthy": healthy(findings), "findings": [asdict(finding) for finding in findings]}
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def healthy(findings: Sequence[Finding]) -> bool:
    return all(finding.state != "missing" for finding in findings)
