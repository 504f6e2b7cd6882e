"""Triton glue: the ``TritonPythonModel`` of each model in the repository. Nothing else imports ``pb_utils``."""
