"""The picture of errors by the clock compares samplers on the same problems, and no name stands in another."""

from __future__ import annotations

import itertools
import math

from locore_lab.bench import task_plots
from locore_lab.bench.task_plots import APART, curves, draw, spread


def rows(sampler, budget, errors):
    costs = {"cpu_seconds": budget / 100}
    return [{"sampler": sampler, "budget": budget, "problem": name, "rmse": error, **costs} for name, error in errors.items()]


def test_means_are_of_problems_that_all_have(monkeypatch):
    monkeypatch.setattr(task_plots, "WIDE", 0.6)
    of = {"a": 1.0, "b": 4.0, "c": 9.0}
    measured = [*rows("auto", 100, of), *rows("auto", 400, of), *rows("smc", 100, {"a": 2.0, "b": 8.0})]
    measured += [*rows("smc", 400, {"a": 2.0, "b": 8.0, "c": None}), *rows("swor", 100, {"a": 1.0}), *rows("swor", 400, of)]
    number, found = curves(measured)
    assert number == 2 and found.keys() == {"auto", "smc"}  # swor has one budget that is wide enough
    for sampler, mean in (("auto", 2.0), ("smc", 4.0)):
        (first, error), (second, _) = found[sampler]
        assert math.isclose(first, 1.0) and math.isclose(second, 4.0) and math.isclose(error, mean)


def test_names_keep_their_order_and_distance():
    heights = {"a": 0.5, "b": 0.49, "c": 0.9, "d": 0.48}
    placed = spread(heights)
    assert sorted(placed, key=placed.get) == sorted(heights, key=heights.get)
    ordered = sorted(placed.values())
    assert all(high - low >= APART - 1e-12 for low, high in itertools.pairwise(ordered))
    assert placed["c"] == 0.9 and placed["a"] == 0.5


def test_the_picture_is_drawn_for_both_themes(tmp_path, monkeypatch):
    monkeypatch.setattr(task_plots, "REPOSITORY", tmp_path)
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    line = {"auto": [(1.0, 0.5), (2.0, 0.2)], "smc": [(1.0, 0.9), (2.0, 0.8)]}
    texts = {theme: draw(3, line, theme).read_text() for theme in ("light", "dark")}
    assert texts["light"] != texts["dark"] and all("<svg" in text for text in texts.values())
