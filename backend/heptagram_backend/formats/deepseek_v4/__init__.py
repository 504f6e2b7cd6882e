"""DeepSeek V4: DSML tool calls behind the text, reasoning between ``<think>`` and ``</think>``."""
