"""Programs of other people's clients, as their users write them; ``tests/server/test_other_clients.py`` runs them.

Each takes the server from ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY``, makes a call of ``get_weather``, and prints one
JSON object: ``call`` (the arguments) and ``answer`` (what the model says to the result).
"""
