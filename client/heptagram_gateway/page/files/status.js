// Readiness, the engine's numbers and the models, asked again and again while somebody looks.
import { getModels, getStatus } from "./api.js";
import { byId, fill, make, show } from "./dom.js";

const PERIOD_MS = 2000;
const WINDOW = 6; // samples that a rate is taken over
const NONE = "–";
const samples = [];

export async function watch(key, onModels) {
  for (;;) {
    if (!document.hidden) {
      const keyRequired = await refreshStatus();
      await refreshModels(key(), keyRequired, onModels);
    }
    await new Promise((resolve) => setTimeout(resolve, PERIOD_MS));
  }
}

export async function refreshModels(key, keyRequired, onModels) {
  if (keyRequired && !key) return showModels([], "The list needs the API key.", onModels);
  try {
    const models = await getModels(key);
    showModels(models, models.length ? "" : "No model is ready.", onModels);
  } catch (error) {
    showModels([], error.message, onModels);
  }
}

async function refreshStatus() {
  try {
    const status = await getStatus();
    showReady(status.ready, status.ready ? "ready" : "not ready", status.reason);
    byId("key-form").hidden = !status.key_required;
    showNumbers(status.gateway, status.engine);
    return status.key_required;
  } catch (error) {
    showReady(false, "unreachable", error.message);
    return false;
  }
}

function showReady(good, word, reason) {
  const badge = byId("ready");
  badge.className = `badge ${good ? "good" : "bad"}`;
  if (badge.textContent !== word) badge.textContent = word; // only a change is read aloud
  show(byId("reason"), reason);
}

function showNumbers(gateway, engine) {
  byId("engine-note").hidden = engine !== null;
  const own = [["in the gateway", `${gateway.running} of ${gateway.limit}`]];
  fill(byId("numbers"), engine === null ? own : [...engineNumbers(engine), ...own]);
}

function engineNumbers(engine) {
  const rates = ratesOf(engine);
  return [
    ["tokens/s", rates.speed],
    ["drafts accepted", rates.acceptance],
    ["running", count(engine.num_requests_running)],
    ["waiting", count(engine.num_requests_waiting)],
    ["slots in use", `${count(engine.slots_used)} of ${count(engine.slots_total)}`],
    ["matchers alive", count(engine.live_matchers)],
    ["invalid outputs", count(engine.invalid_outputs_total)],
    ["finished", count(engine.request_success_total)],
    ["failed", count(engine.requests_failed_total)],
    ["cancelled", count(engine.requests_cancelled_total)],
    ["tokens", count(engine.generation_tokens_total)],
  ];
}

// Speed over the last samples; acceptance over them too, or over all time while nothing was drafted.
function ratesOf(engine) {
  const now = { at: performance.now(), engine };
  if (samples.length && engine.generation_tokens_total < samples.at(-1).engine.generation_tokens_total) samples.length = 0; // restarted
  samples.push(now);
  if (samples.length > WINDOW) samples.shift();
  const first = samples[0];
  const grown = (name) => engine[name] - first.engine[name];
  const seconds = (now.at - first.at) / 1000;
  const drafted = grown("draft_tokens_total");
  const acceptance = drafted
    ? grown("spec_decode_num_accepted_tokens_total") / drafted
    : engine.spec_decode_num_accepted_tokens_total / engine.spec_decode_num_draft_tokens_total;
  return {
    speed: seconds ? (grown("generation_tokens_total") / seconds).toFixed(1) : NONE,
    acceptance: Number.isFinite(acceptance) ? `${Math.round(100 * acceptance)} %` : NONE,
  };
}

const count = (value) => (value === undefined ? NONE : value.toLocaleString("en"));

function showModels(models, note, onModels) {
  show(byId("models-note"), note);
  const table = byId("models");
  table.hidden = !models.length;
  table.tBodies[0].replaceChildren(
    ...models.map((model) => {
      const row = make("tr");
      row.append(make("td", model.id), make("td", model.versions.join(", ")));
      return row;
    }),
  );
  onModels(models.map((model) => model.id));
}
