"""The client: streams, transports, fold, command line."""
