"""The curve of oversampling over its draws."""

from __future__ import annotations

import itertools
from math import comb

import pytest
from locore_lab.bench.oversampling import ALL, curve, shares


@pytest.mark.parametrize(("valid", "exact"), [(0, 0), (1, 0), (3, 2), (5, 5), (6, 1)])
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_shares_are_means_over_all_sets_of_draws(valid, exact, size):
    """Six draws, every set of `size` of them; the one taken is any of its valid ones."""
    draws = [(i < valid, i < exact) for i in range(6)]
    found = [0.0, 0.0]
    for chosen in itertools.combinations(draws, size):
        good = [is_exact for is_valid, is_exact in chosen if is_valid]
        found[0] += sum(good) / len(good) / comb(6, size) if good else 0
        found[1] += bool(good) / comb(6, size)
    assert shares(valid, exact, 6, size) == pytest.approx(found)


def test_the_curve_ends_at_the_exact_law():
    rows = curve([(5, 4), (10, 3), (0, 0)], 10)
    assert [row["draws"] for row in rows] == [1, 2, 3, 5, 10, ALL]
    assert rows[-1]["exact %"].startswith(f"{100 * (4 / 5 + 3 / 10) / 3:.1f} ±")
    assert rows[0]["consistent %"].startswith("50.0 ±")
