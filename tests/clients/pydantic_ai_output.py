"""pydantic-ai: an agent whose output is a model; it asks for it by a required call of a strict tool."""

from __future__ import annotations

import json
import os
import sys
from typing import Literal

from pydantic import BaseModel
from pydantic_ai import Agent, ModelSettings, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Weather(BaseModel):
    """Asks for the weather of a city."""

    city: Literal["Paris", "Oslo", "Rome"]
    unit: Literal["celsius", "fahrenheit"]


def main() -> None:
    provider = OpenAIProvider(base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
    model = OpenAIChatModel("chat", provider=provider)
    settings = ModelSettings(temperature=0.0, max_tokens=64)
    agent = Agent(model, output_type=ToolOutput(Weather, name="get_weather", strict=True), model_settings=settings)
    asked = agent.run_sync("What is the weather in Paris, in celsius?")
    teller = Agent(model, model_settings=settings)
    told = teller.run_sync("Say hello.", message_history=asked.all_messages())
    json.dump({"call": asked.output.model_dump(), "answer": told.output}, sys.stdout)


main()
