"""Anthropic's Messages API, for text and tools of the caller's own, whole and streamed; and ``count_tokens``.

What differs: ``stop_reason`` is ``end_turn`` where a stop sequence was met, for the engine does not tell which;
``budget_tokens`` of thinking is no bound (``max_tokens`` is); thinking is not signed (``signature`` is empty) and not
checked when it comes back; an error result (``is_error``) is told to the model by an ``Error:`` in front of it;
``cache_control`` has no meaning, for prefixes are cached anyway; ``input_tokens`` counts cached ones too.
"""
