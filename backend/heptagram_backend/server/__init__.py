"""``heptagram serve``: finds, prepares, starts, watches and stops the real tritonserver."""
