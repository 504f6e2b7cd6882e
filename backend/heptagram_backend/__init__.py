"""The serving side: preprocessing, constraints, the K7 engine and the Triton glue."""
