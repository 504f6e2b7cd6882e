// The form: what is sent, and the answer as it streams in.
import { streamChat } from "./api.js";
import { byId, fill, make, show } from "./dom.js";

const TOOLS = `[{
  "type": "function",
  "function": {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
      "type": "object",
      "properties": {
        "city": {"type": "string", "enum": ["Paris", "Oslo", "Rome"]},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}
      },
      "required": ["city", "unit"],
      "additionalProperties": false
    }
  }
}]`;

export function startForm(key) {
  let running = null;
  byId("tools").value = TOOLS;
  byId("tools").addEventListener("input", offerChoices);
  byId("stop").addEventListener("click", () => running?.abort());
  byId("try").addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = read();
    if (running || !body) return;
    running = new AbortController();
    work(true);
    await run(body, key(), running.signal);
    running = null;
    work(false);
  });
  offerChoices();
  byId("choice").value = "required";
}

export function offerModels(ids) {
  byId("model").disabled = !ids.length;
  offer(byId("model"), ids);
}

// Keep what is chosen where it is still offered.
function offer(select, names) {
  if (names.join("\n") === [...select.options].map((option) => option.value).join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(chosen)) select.value = chosen;
}

function readTools() {
  const text = byId("tools").value.trim();
  const tools = text ? JSON.parse(text) : [];
  if (!Array.isArray(tools)) throw new SyntaxError("give a list of tools");
  return tools;
}

function offerChoices() {
  try {
    const names = readTools().map((tool) => tool?.function?.name);
    offer(byId("choice"), ["auto", "none", "required", ...names.filter((name) => typeof name === "string")]);
    byId("tools-fault").textContent = "";
  } catch (error) {
    byId("tools-fault").textContent = error.message;
  }
}

// The request, or nothing while the tools cannot be read.
function read() {
  offerChoices();
  if (byId("tools-fault").textContent) return null;
  const tools = readTools();
  const body = {
    messages: [{ role: "user", content: byId("message").value }],
    max_tokens: byId("limit").valueAsNumber,
    stream: true,
    stream_options: { include_usage: true },
  };
  if (byId("model").value) body.model = byId("model").value;
  if (tools.length) Object.assign(body, { tools: tools.map(withStrict), tool_choice: readChoice() });
  return body;
}

function withStrict(tool) {
  return tool?.function ? { ...tool, function: { ...tool.function, strict: byId("strict").checked } } : tool;
}

function readChoice() {
  const name = byId("choice").value;
  return ["auto", "none", "required"].includes(name) ? name : { type: "function", function: { name } };
}

function work(busy) {
  byId("send").disabled = busy;
  byId("stop").disabled = !busy;
}

async function run(body, key, signal) {
  const answer = new Answer();
  try {
    for await (const chunk of streamChat(body, key, signal)) answer.take(chunk);
  } catch (error) {
    if (error.name === "AbortError") answer.facts.set("end", "stopped");
    else show(byId("failure"), error.message);
  }
  answer.end();
}

class Answer {
  facts = new Map();
  #began = performance.now();
  #pieces = new Map();

  constructor() {
    byId("answer").hidden = false;
    byId("pieces").replaceChildren();
    byId("facts").replaceChildren();
    show(byId("failure"), "");
  }

  take(chunk) {
    for (const choice of chunk.choices) {
      this.#takeDelta(choice.delta);
      if (choice.finish_reason) this.facts.set("end", choice.finish_reason);
    }
    if (chunk.usage) this.#takeUsage(chunk.usage, chunk.metrics?.speculative_decoding);
  }

  end() {
    this.facts.set("in all", `${Math.round(this.#elapsed())} ms`);
    fill(byId("facts"), [...this.facts]);
  }

  #takeDelta(delta) {
    if (delta.reasoning_content) this.#piece("reasoning", "reasoning").append(delta.reasoning_content);
    if (delta.content) this.#piece("text", "text").append(delta.content);
    for (const call of delta.tool_calls ?? []) {
      const place = this.#piece(`call ${call.index}`, "call", `call of ${call.function?.name}, ${call.id}`);
      place.append(call.function?.arguments ?? "");
    }
  }

  #takeUsage(usage, drafts) {
    this.facts.set("prompt", `${usage.prompt_tokens} tokens`);
    this.facts.set("answer", `${usage.completion_tokens} tokens`);
    if (drafts?.num_draft_tokens) {
      this.facts.set("drafts accepted", `${drafts.num_accepted_draft_tokens} of ${drafts.num_draft_tokens}`);
    }
  }

  // Where the text of one part goes; the part is made when its first text comes.
  #piece(name, kind, title = name) {
    if (!this.#pieces.size) this.#first();
    if (!this.#pieces.has(name)) {
      const text = make("pre");
      const piece = make("div", "", `piece ${kind}`);
      piece.append(make("h4", title), text);
      byId("pieces").append(piece);
      this.#pieces.set(name, text);
    }
    return this.#pieces.get(name);
  }

  #first() {
    this.facts.set("first event", `${Math.round(this.#elapsed())} ms`);
    fill(byId("facts"), [...this.facts]);
  }

  #elapsed() {
    return performance.now() - this.#began;
  }
}
