"""Ten calls of the conformance suite through the real server with the real model: each is valid as declared."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from heptagram_client.client import Client
from tests.conformance import bfcl
from tests.conformance.cases import Case, named_of_toolsets, of_bfcl, required_of_toolsets
from tests.conformance.verdict import Answer, judge
from tests.server.served import Served

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

MAX_TOKENS = 96
NAMED = {"exec_command": True, "git_log": False, "browser_resize": True}


def _sample() -> list[Case]:
    """Seven of the tool sets, four by required and three by name, and three of BFCL."""
    required = [case for case in required_of_toolsets() if case.source in ("filesystem", "memory")]
    named = [case for case in named_of_toolsets(neighbours=1) if NAMED.get(case.choice or "") is case.parallel]
    prompts = list(of_bfcl(3)) if bfcl.data_folder() else []
    return [*required[0::3], *named, *prompts[0::5]]


@pytest.mark.skipif(bfcl.data_folder() is None, reason=f"needs pip install --no-deps {bfcl.REQUIREMENT}")
def test_ten_strict_calls_are_valid(shipped: Served) -> None:
    cases = _sample()
    assert len(cases) == 10
    with Client(shipped.grpc_url) as client, ThreadPoolExecutor(8) as threads:

        def ask(case: Case) -> Answer:
            with client.stream(case.request(MAX_TOKENS)) as events:
                return judge(case, list(events))

        answers = list(threads.map(ask, cases))
    assert not [violation for answer in answers for violation in answer.violations]
    messages = [answer.message for answer in answers if answer.message]
    finished = [any(call.complete for call in message.tool_calls) for message in messages]
    assert sum(finished) >= 5, "a sample of cut calls shows nothing"
    shipped.settle()
