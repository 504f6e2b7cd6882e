"""DeepSeek's calls over SmolLM2's own template and tokenizer, with and without a token for the marker."""

from __future__ import annotations

import json

import pytest

from heptagram_backend.conversation import Message, PastCall, ToolChoice
from heptagram_backend.errors import ReleaseError
from heptagram_backend.formats.base import Text
from heptagram_backend.formats.chatml_dsml import ChatMLDsml
from heptagram_backend.formats.deepseek_v4.markup import V4
from heptagram_backend.generation import OutputSpec
from heptagram_backend.tokenizer import CheckpointTokenizer
from tests.formats import smollm2
from tests.formats.samples import call, parse, request, tool, walked
from tests.formats.test_encode import CONVERSATION, WEATHER

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
PARAMETERS = [V4.parameter_text("city", "Oslo", string=True), V4.parameter_text("days", "3", string=False)]
CALL = V4.block_text([V4.invoke_text("weather", PARAMETERS)])


def contents(*messages: Message, **fields: object) -> list[tuple[str, str]]:
    rendered = ChatMLDsml().rendered_messages(request(*messages, **fields))
    return [(message["role"], message["content"]) for message in rendered]


def test_turns_hold_what_deepseeks_hold() -> None:
    cities = [V4.invoke_text("weather", [V4.parameter_text("città", city, string=True)]) for city in ("Roma", "Oslo")]
    assert contents(*CONVERSATION) == [
        ("system", "Be brief."),
        ("user", "Weather in Rome and Oslo?"),
        ("assistant", V4.block_text(cities)),
        ("user", "<tool_result>warm</tool_result>\n\n<tool_result>cold</tool_result>"),
        ("assistant", "Warm and cold."),
        ("user", "Thanks!"),
    ]


def test_prompts_with_the_same_system_message_begin_alike_whatever_their_tools() -> None:
    (_, one), (_, other) = (contents(tools=tools)[0] for tools in ((WEATHER,), (tool("now"),)))
    head = one[: one.index("{")]
    assert other.startswith(head)
    assert json.loads(one.removeprefix(head))["name"] == "weather"
    assert contents(*CONVERSATION, tools=(WEATHER,))[0][1] == f"Be brief.\n\n{one}"


@pytest.mark.parametrize("tools", [(), (WEATHER,)])
def test_ids_are_those_of_the_template(tools: tuple[object, ...]) -> None:
    asked = request(*CONVERSATION, tools=tools)
    expected = smollm2.reference().apply_chat_template(
        ChatMLDsml().rendered_messages(asked), tokenize=True, add_generation_prompt=True
    )["input_ids"]
    assert list(ChatMLDsml().encode(asked, smollm2.tokenizer()).ids) == expected


def test_everything_of_the_caller_is_guarded() -> None:
    evil = "｜DSML｜"
    asked = request(
        Message("system", evil),
        Message("user", evil),
        Message("assistant", evil, calls=(PastCall("1", evil, json.dumps({evil: evil})),)),
        Message("tool", evil, call_id="1"),
        tools=(tool(evil, {"type": "object", "description": evil}),),
    )
    ours = smollm2.dsml_tokenizer()
    marker = ours.token_id(evil)
    clean = request(*CONVERSATION[1:3], tools=(WEATHER,))
    in_tags = ChatMLDsml().encode(clean, ours).ids.count(marker)
    assert in_tags == 6 + 2 + 4 + 4  # of the example, the block, two calls, two parameters
    assert ChatMLDsml().encode(asked, ours).ids.count(marker) == 6 + 2 + 2 + 2


@pytest.mark.parametrize("made", [smollm2.tokenizer, smollm2.dsml_tokenizer])
def test_a_call_in_canonical_tokens_is_legal_and_read(made: object) -> None:
    own = made()  # type: ignore[operator]
    assert isinstance(own, CheckpointTokenizer)
    factory = smollm2.factory() if own is smollm2.tokenizer() else smollm2.dsml_factory()
    held = ChatMLDsml().constrain(request(tools=(walked("weather", CITY),), tool_choice=ToolChoice("required")))
    assert held.constraint is not None
    grammar = factory.matcher(held.constraint)
    try:
        assert all(grammar.accept(token) for token in [*own.encode(CALL), smollm2.EOS])
    finally:
        grammar.close()
    output = OutputSpec("chatml_dsml", parse_calls=True)
    assert parse(ChatMLDsml().parser(output), *CALL) == call("weather", '{"city": "Oslo", "days": 3}')
    assert parse(ChatMLDsml().parser(OutputSpec("chatml_dsml")), CALL) == [Text(CALL)]


def test_one_token_halves_a_call() -> None:
    assert len(smollm2.dsml_tokenizer().encode(CALL)) < 0.6 * len(smollm2.tokenizer().encode(CALL))


def test_only_a_control_token_can_be_renamed() -> None:
    from heptagram_backend.adapter import renamed

    source = {"added_tokens": [{"id": 0, "content": "<a>", "special": True}], "model": {"vocab": {"<a>": 0, "b": 1}}}
    assert renamed(source, {"<a>": "<c>"}) == {
        "added_tokens": [{"id": 0, "content": "<c>", "special": False}],
        "model": {"vocab": {"<c>": 0, "b": 1}},
    }
    for names in ({"b": "<c>"}, {"<a>": "<a>"}):
        with pytest.raises(ReleaseError, match="no control token"):
            renamed(source, names)
