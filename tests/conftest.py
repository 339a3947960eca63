"""Fixtures that all tests share."""

import os
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

# What tests compute once for a model stays out of the user's cache.
_cache = tempfile.TemporaryDirectory(prefix="locore-tests-")
os.environ["LOCORE_CACHE"] = _cache.name
settings.register_profile("locore", deadline=None)  # a test never fails for being slow
settings.load_profile("locore")

SHARED_MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"


@pytest.fixture(scope="session")
def stories260k() -> Path:
    """The folder of a real model of 260,000 parameters; the test is skipped without it."""
    folder = SHARED_MODELS / "stories260k"
    if not folder.is_dir():
        pytest.skip("the stories260k model is not here")
    return folder
