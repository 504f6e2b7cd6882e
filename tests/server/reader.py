"""A client to be killed: prints a line for each response of one chat request."""

from __future__ import annotations

import sys

from heptagram_wire import tensors as names
from tests.server.served import RawStream, text_input

if __name__ == "__main__":
    url, request = sys.argv[1:]
    with RawStream(url, names.CHAT, [text_input(names.REQUEST, request)]) as stream:
        while not stream.next().final:
            sys.stdout.write("response\n")
            sys.stdout.flush()
