// The npm package `openai`: the call, its result, the answer as a stream; then runTools, which does all that by itself.

import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 0 });
const common = { model: "chat", temperature: 0, max_completion_tokens: 64 };
const parameters = {
  type: "object",
  properties: {
    city: { type: "string", enum: ["Paris", "Oslo", "Rome"] },
    unit: { type: "string", enum: ["celsius", "fahrenheit"] },
  },
  required: ["city", "unit"],
  additionalProperties: false,
};
const weather = { name: "get_weather", description: "The weather of a city.", parameters, strict: true };
const messages = [{ role: "user", content: "What is the weather in Paris, in celsius?" }];

const asked = await client.chat.completions.create({
  ...common,
  messages,
  tools: [{ type: "function", function: weather }],
  tool_choice: "required",
  parallel_tool_calls: false,
});
const { message, finish_reason } = asked.choices[0];
if (finish_reason !== "tool_calls" || message.tool_calls.length !== 1) throw new Error(JSON.stringify(asked));
const [call] = message.tool_calls;
messages.push(message, { role: "tool", tool_call_id: call.id, content: "12 degrees and rain" });

let answer = "";
for await (const chunk of await client.chat.completions.create({ ...common, messages, stream: true })) {
  answer += chunk.choices[0]?.delta?.content ?? "";
}

const heard = [];
const listen = ({ city }) => {
  heard.push(city);
  return `rain in ${city}`;
};
const runner = client.chat.completions.runTools({
  ...common,
  messages: messages.slice(0, 1),
  tools: [{ type: "function", function: { ...weather, parse: JSON.parse, function: listen } }],
  tool_choice: { type: "function", function: { name: "get_weather" } },
  parallel_tool_calls: false,
});
await runner.done();
if (heard.length !== 1) throw new Error(`runTools called ${heard.length} times`);

console.log(JSON.stringify({ call: JSON.parse(call.function.arguments), answer }));
