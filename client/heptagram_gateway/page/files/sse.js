// Server-sent events without I/O: feed text as it comes, get the data of the events that are complete.
export class EventParser {
  #rest = "";

  feed(text) {
    const parts = (this.#rest + text).split("\n\n");
    this.#rest = parts.pop();
    return parts.map(dataOf).filter((data) => data !== "");
  }
}

function dataOf(event) {
  const lines = event.split("\n").filter((line) => line.startsWith("data: "));
  return lines.map((line) => line.slice(6)).join("\n");
}
