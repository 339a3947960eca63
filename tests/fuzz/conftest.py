"""Fixtures of the fuzzing: three kinds of tokenizers, and how many examples a law is tried on.

Every law runs on few examples that are always the same, and (`slow`) on thousands of new ones.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from transformers import AutoTokenizer

import locore
from locore.kernel.tokenizer import Tokenizer

from ..test_tokenizer import byte_level
from .cases import Vocabulary

FEW, MANY = 3, 800
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
PHASES = [Phase.generate, Phase.shrink]  # nothing is kept between runs


@pytest.fixture(scope="module", params=["stories260k", "tiny", "byte level"])
def vocabulary(request) -> Vocabulary:
    if request.param == "tiny":
        return Vocabulary("tiny", locore.load("tiny").tokenizer)
    if request.param == "stories260k":
        real = AutoTokenizer.from_pretrained(request.getfixturevalue("stories260k"))
        return Vocabulary("stories260k", Tokenizer.from_huggingface(real, 512))
    return Vocabulary("byte level", Tokenizer.from_huggingface(byte_level(), 410, eos_ids=[7]))


@pytest.fixture(params=[FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
def explore(request) -> Callable[..., None]:
    """Runs a law on examples of a strategy."""

    def run(strategy, law) -> None:
        few = request.param == FEW
        chosen = settings(max_examples=request.param, derandomize=few, suppress_health_check=QUIET, phases=PHASES)
        chosen(given(strategy)(law))()

    return run
