"""The wire contract: events, errors, requests."""
