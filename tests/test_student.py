"""Student's t against scipy, which is no dependency of the package."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from locore.kernel.evidence.bounds import _within, quantile


@given(st.floats(0, 50), st.integers(1, 400))
def test_probabilities_are_those_of_scipy(bound, degrees):
    expected = 1 - 2 * stats.t.sf(bound, degrees)
    assert _within(math.atan(bound / math.sqrt(degrees)), degrees) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_quantiles_are_those_of_scipy(confidence):
    """For every number of blocks that anyone uses, and many more."""
    for degrees in [*range(1, 130), 1000]:
        assert quantile(degrees, confidence) == pytest.approx(stats.t.ppf((1 + confidence) / 2, degrees), rel=1e-9)


def test_quantiles_fall_towards_those_of_the_normal_law():
    quantiles = [quantile(degrees, 0.95) for degrees in range(1, 200)]
    assert all(one > other for one, other in itertools.pairwise(quantiles))
    assert quantiles[-1] > stats.norm.ppf(0.975)
    assert math.isclose(quantile(100_000, 0.95), stats.norm.ppf(0.975), rel_tol=1e-4)
