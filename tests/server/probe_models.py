"""The shipped model classes around the scripted engine; imported only inside Triton's stub process."""

from __future__ import annotations

from heptagram_backend.engine_api import Engine
from heptagram_backend.release import Release
from heptagram_backend.triton import generate, preprocess
from tests.server.probe import ProbeEngine, ProbePreprocessor


class ProbeGenerate(generate.TritonPythonModel):
    def open_engine(self, release: Release, version: str) -> Engine:
        return ProbeEngine()


class ProbePreprocess(preprocess.TritonPythonModel):
    def open_preprocessor(self, release: Release) -> preprocess.Prepares:
        return ProbePreprocessor()
