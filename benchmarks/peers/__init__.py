"""The same prompts under the same JSON Schemas through other engines, each in a virtual environment of its own.

A peer's worker runs in its own process and environment: it sees this package and the standard library, nothing else of
the project. Workers take turns, prompt by prompt; while one works the others wait for their next line.
"""
