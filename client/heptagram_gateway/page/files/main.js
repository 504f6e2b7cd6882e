import { byId } from "./dom.js";
import { offerModels, startForm } from "./prompt.js";
import { refreshModels, watch } from "./status.js";

const key = () => byId("key").value;

startForm(key);
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  refreshModels(key(), true, offerModels);
});
watch(key, offerModels);
