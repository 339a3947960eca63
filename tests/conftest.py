"""Fixtures that all tests share."""

from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
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
