"""The Python client: one gRPC stream per request, folded or streamed, and the command line."""
