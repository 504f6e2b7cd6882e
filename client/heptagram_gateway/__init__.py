"""The OpenAI-compatible HTTP front over :mod:`heptagram_client`.

The package holds its place in the import contracts; the front itself has not been built yet, and
``heptagram serve --openai-port`` says so.
"""
