"""The shipped model classes around the engine of known costs; imported only inside Triton's stub process."""

from __future__ import annotations

from heptagram_backend.engine_api import Engine
from heptagram_backend.release import Release
from heptagram_backend.triton import generate, preprocess
from tests.server.counted import CountedPreprocessor, open_engine


class CountedGenerate(generate.TritonPythonModel):
    def open_engine(self, release: Release, version: str) -> Engine:
        return open_engine(version)


class CountedPreprocess(preprocess.TritonPythonModel):
    def open_preprocessor(self, release: Release) -> preprocess.Prepares:
        return CountedPreprocessor()
