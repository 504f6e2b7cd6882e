// The gateway's API as the page uses it. Paths are relative, so a proxy may put the page below a prefix.
import { EventParser } from "./sse.js";

// What a failed request says. `status` is 0 where nobody answered.
export class ApiError extends Error {
  constructor(status, error) {
    super(error.param ? `${error.param}: ${error.message}` : error.message);
    this.status = status;
  }
}

export const getStatus = async () => (await ask("status")).json();

export const getModels = async (key) => (await (await ask("v1/models", { headers: keyed(key) })).json()).data;

// The chunks of a streamed chat as they come. Leaving the loop, or `signal`, cancels it.
export async function* streamChat(body, key, signal) {
  const response = await ask("v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json", ...keyed(key) },
    body: JSON.stringify(body),
    signal,
  });
  const parser = new EventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new ApiError(0, { message: "the stream was cut off" });
      for (const data of parser.feed(value)) {
        if (data === "[DONE]") return;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new ApiError(response.status, chunk.error);
        yield chunk;
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

const keyed = (key) => (key ? { authorization: `Bearer ${key}` } : {});

async function ask(path, options) {
  const response = await fetch(path, options).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "the gateway does not answer" });
  });
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  throw new ApiError(response.status, said?.error ?? { message: `status ${response.status}` });
}
