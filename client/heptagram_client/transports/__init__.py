"""How a request travels: gRPC, HTTP, inside this process, or replayed from a script."""
