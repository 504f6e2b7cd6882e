"""Server-sent events, as far as Triton's generate_stream uses them. No I/O: lines in, data out."""

from __future__ import annotations


class SseDecoder:
    """Joins ``data:`` lines; an empty line ends one message. Comments and other fields are dropped."""

    def __init__(self) -> None:
        self._data: list[str] = []

    def feed(self, line: str) -> str | None:
        """Take one line with or without its line end; return the data of a message that it completes."""
        line = line.rstrip("\r\n")
        if not line:
            return self.flush()
        field, _, value = line.partition(":")
        if field == "data":
            self._data.append(value.removeprefix(" "))
        return None

    def flush(self) -> str | None:
        """The data of a message that the end of the stream completes."""
        data, self._data = self._data, []
        return "\n".join(data) if data else None
