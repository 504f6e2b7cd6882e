"""What people hit elsewhere with a conversation that is sent back: the right prompt in every format."""

from __future__ import annotations

from typing import Any, Final

import pytest

from heptagram_wire import errors as codes
from tests.cases.kits import FORMATS, kit
from tests.cases.test_tool_choice import EACH, STRICT, TOOLS, begun, tool
from tests.cases.writing import written

USER: Final[dict[str, Any]] = {"role": "user", "content": "Weather in Oslo?"}
DSML: Final = ("deepseek_v4", "deepseek_v4_1")


def history(arguments: Any = '{"city": "Oslo"}', result: Any = "4 C", **assistant: Any) -> dict[str, Any]:
    """A call, its result, and a further question."""
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call], **assistant}
    messages = [USER, turn, {"role": "tool", "tool_call_id": "c1", "content": result}, {**USER, "content": "Short?"}]
    return {"messages": messages, "tools": TOOLS, "tool_choice": "auto"}


@EACH
@pytest.mark.parametrize("arguments", ["", "null", " ", None, "{}", {}])
def test_no_arguments_are_an_empty_object(name: str, arguments: Any) -> None:
    """https://github.com/vllm-project/vllm/pull/48922"""
    assert kit(name).prompt(history(arguments)) == kit(name).prompt(history("{}"))


@EACH
@pytest.mark.parametrize("arguments", ['{"city": "Os', "{city: Oslo}", '{"city": Oslo}}', "Oslo", "[" * 5_000])
def test_arguments_that_are_no_json_stay_in_the_prompt_as_they_are(name: str, arguments: str) -> None:
    """https://github.com/vllm-project/vllm/pull/48922: the conversation can go on, and the model sees what it wrote."""
    shown = kit(name).prompt(history(arguments))
    assert arguments in shown or arguments.replace('"', '\\"') in shown


@EACH
def test_a_name_twice_is_no_fault(name: str) -> None:
    """https://github.com/vllm-project/vllm/pull/48922"""
    prompt = kit(name).prompt(history('{"city":"a","city":"b"}')).replace("\\", "")
    assert '"b"' in prompt or ">b<" in prompt


@EACH
@pytest.mark.parametrize("content", [None, "", []])
def test_empty_contents_are_never_a_word(name: str, content: Any) -> None:
    """https://github.com/sgl-project/sglang/pull/39043: of a result, and beside calls."""
    prompt = kit(name).prompt(history(result=content))
    assert prompt == kit(name).prompt(history(result=""))
    assert kit(name).prompt(history(content=content)) == kit(name).prompt(history(content=""))
    assert not any(word in prompt for word in ("None", "null"))


@EACH
@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("role", ["user", "developer", "system", "assistant"])
def test_a_message_without_content_is_refused_with_its_place(name: str, role: str, place: int) -> None:
    """https://github.com/sgl-project/sglang/pull/39043"""
    messages: list[Any] = [USER, {"role": "assistant", "content": "hi"}, USER]
    messages[place] = {"role": role, "content": None}
    wire = kit(name).refusal({"messages": messages})
    assert (wire.code, wire.param) == (codes.MISSING, f"messages[{place}].content")


@EACH
def test_developers_are_heard(name: str) -> None:
    """https://github.com/decolua/9router/issues/773: alone, and behind a system message."""
    developer: dict[str, Any] = {"role": "developer", "content": "Answer in French."}
    for messages in ([developer, USER], [{"role": "system", "content": "Be brief."}, developer, USER]):
        prompt = kit(name).prompt({"messages": messages, "tools": TOOLS})
        assert all(str(message["content"]) in prompt for message in messages)


@EACH
@pytest.mark.parametrize("role", ["function", "User", "admin", "", "latest_reminder"])
def test_other_roles_are_refused_with_their_place(name: str, role: str) -> None:
    """https://github.com/decolua/9router/issues/773: ``latest_reminder`` is one of DeepSeek's models alone."""
    body = {"messages": [USER, {"role": role, "content": "Today is Monday."}]}
    if role == "latest_reminder" and name in DSML:
        assert "Today is Monday." in kit(name).prompt(body)
        answered = [*body["messages"], {"role": "assistant", "content": "ok"}, USER]
        assert "Today is Monday." in kit(name).prompt({"messages": answered})
        return
    wire = kit(name).refusal(body)
    assert (wire.code, wire.param) == (codes.INVALID_VALUE, "messages[1].role")
    assert kit(name).refusal({"messages": []}).param == "messages"


def lookups(name: str) -> list[dict[str, Any]]:
    """One short name in two namespaces, each written in one of the two places."""
    billing = tool("lookup", "id", strict=True, namespace="billing")
    return [{**tool(name, "id", strict=True), "namespace": "inventory"}, billing]


@EACH
def test_namespaces_are_kept_apart_from_the_declaration_to_the_answer_and_back(name: str) -> None:
    """https://github.com/local-inference-lab/vllm/pull/787"""
    asked = history('{"id": "7"}')
    asked["messages"][1]["tool_calls"][0]["function"] |= {"name": "lookup", "namespace": "billing"}
    chosen = {"type": "function", "function": {"name": "inventory::lookup"}}
    body = {**asked, "tools": lookups("lookup"), "tool_choice": chosen}
    assert kit(name).prompt(body).count("billing::lookup") == 2  # declared, and called
    answer = kit(name).answer(body, written(name, ("inventory::lookup", {"id": "7"})))
    assert begun(answer) == ["inventory::lookup"]
    assert begun(kit(name).answer(body, written(name, ("billing::lookup", {"id": "7"})))) in ([], ["inventory::lookup"])
    again = history('{"id": "7"}')
    again["messages"][1]["tool_calls"][0]["function"] |= {"name": "billing::lookup"}
    assert kit(name).prompt({**again, "tools": lookups("lookup")}) == kit(name).prompt({**body, "tool_choice": "auto"})


@EACH
def test_a_short_name_is_no_namespaced_one(name: str) -> None:
    """https://github.com/local-inference-lab/vllm/pull/787"""
    bare = {"type": "function", "function": {"name": "lookup"}}
    body = {"messages": [USER], "tools": lookups("lookup")}
    assert kit(name).refusal({**body, "tool_choice": bare}).param == "tool_choice"
    torn = [{**tool("f", "id", namespace="y"), "namespace": "x"}]
    assert kit(name).refusal({**body, "tools": torn}).param == "tools[0].function.namespace"
    assert kit(name).refusal({**body, "tools": [*STRICT, STRICT[0]]}).param == "tools[2].function.name"


THINKING: Final[dict[str, Any]] = {"chat_template_kwargs": {"enable_thinking": True}}
_DUMPED: Final[dict[str, Any]] = {
    "refusal": None,
    "audio": None,
    "annotations": [],
    "function_call": None,
    "reasoning_content": None,
}


@pytest.mark.parametrize(
    ("name", "mode"),
    [*((name, {}) for name in FORMATS), *((name, THINKING) for name in ("deepseek_v4", "deepseek_v4_1", "qwen3"))],
)
def test_reasoning_of_earlier_turns_may_be_missing(name: str, mode: dict[str, Any]) -> None:
    """https://github.com/Gitlawb/openclaude/issues/878: and what clients dump beside it changes nothing."""
    plain = kit(name).prompt(history() | mode)
    for extra in ({"reasoning_content": None}, {"reasoning_content": ""}, {"reasoning": ""}, _DUMPED):
        assert kit(name).prompt(history(**extra) | mode) == plain


@pytest.mark.parametrize("name", ["deepseek_v4", "deepseek_v4_1", "qwen3", "qwen3_xml"])
@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_of_a_tool_turn_goes_back_where_the_model_thinks(name: str, key: str) -> None:
    """https://github.com/Gitlawb/openclaude/issues/878: DeepSeek's encoders keep it, Qwen's templates are given it."""
    assert "User wants Oslo." in kit(name).prompt(history(**{key: "User wants Oslo."}) | THINKING)
