"""LangChain: ``bind_tools(strict=True)``, the call, its result, the answer as a stream."""

from __future__ import annotations

import json
import os
import sys
from typing import Literal

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def get_weather(city: Literal["Paris", "Oslo", "Rome"], unit: Literal["celsius", "fahrenheit"]) -> str:
    """The weather of a city."""
    return f"12 degrees {unit} and rain in {city}"


def main() -> None:
    model = ChatOpenAI(
        model="chat", base_url=os.environ["OPENAI_BASE_URL"], temperature=0, max_completion_tokens=64, max_retries=0
    )
    history: list[BaseMessage] = [HumanMessage("What is the weather in Paris, in celsius?")]
    bound = model.bind_tools([get_weather], tool_choice="required", strict=True, parallel_tool_calls=False)
    message = bound.invoke(history)
    [call] = message.tool_calls
    history += [message, ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])]
    answer = "".join(chunk.text for chunk in model.stream(history))
    json.dump({"call": call["args"], "answer": answer}, sys.stdout)


main()
