"""OpenAI's (older) completions over the ensemble ``completions``: raw prompts, no chat template, no tools."""
