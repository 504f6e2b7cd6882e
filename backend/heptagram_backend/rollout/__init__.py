"""``heptagram repo``: new versions of a served model, without a lost request.

A *version* is a matched pair of ``preprocess/N`` and ``generate/N`` with ensembles pinned to it, ``chat_vN`` and
``completions_vN``. ``chat`` and ``completions`` are pinned to the *current* version. Everything is written to files
before Triton is asked to load it, so that any later load, the watchdog's too, comes to the same state.
"""
