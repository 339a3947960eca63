"""Tables of n-grams from fewer texts, for tests of experiments that want any table and ask nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from locore.samplers.twist import ngram
from tests.effort import THOROUGH

POSITIONS = 1_000


@contextmanager
def small_tables() -> Iterator[None]:
    """Models that have no table yet get one of these; a model with a name would keep it for the tests that follow."""
    made = ngram._make
    with pytest.MonkeyPatch.context() as patch:
        if not THOROUGH:
            patch.setattr(ngram, "_make", lambda model, _, progress=None: made(model, POSITIONS, progress))
        yield
