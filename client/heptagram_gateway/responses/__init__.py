"""OpenAI's Responses API, without a state: text and function tools, whole and streamed.

Nothing is kept: ``store`` is always answered as false, ``previous_response_id``, ``conversation`` and ``background``
are refused. Tools that OpenAI runs itself are refused by name. Reasoning comes as it is (``reasoning_text``), not
summed up. ``reasoning_tokens`` and ``cached_tokens`` are not counted apart: they are 0. A call that was cut by the
token limit is in no ``done`` event and not in the final ``output``: it must not be run. Log probabilities are told of
the tokens of texts, not of those of reasoning and calls; those without a text of their own, at its end, only when the
text is done.
"""
