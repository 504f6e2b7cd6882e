"""Hermes-style calls: ``<tool_call>``, a JSON object with ``name`` and ``arguments``, ``</tool_call>``."""
