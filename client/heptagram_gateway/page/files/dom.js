// Elements are made here only, and text gets into them as text: nothing that a model says is ever read as HTML.
export const byId = (id) => document.getElementById(id);

export function make(tag, text = "", className = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = className;
  return element;
}

// Fill a <dl> with name and value.
export function fill(list, entries) {
  list.replaceChildren(
    ...entries.map(([name, value]) => {
      const entry = make("div");
      entry.append(make("dt", name), make("dd", value));
      return entry;
    }),
  );
}

export function show(element, text) {
  element.textContent = text ?? "";
  element.hidden = !text;
}
