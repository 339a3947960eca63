"""Conclusions from rows: ratios to peers, comparison with SMC, calibration; and the tables that show them."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from locore_lab.fidelity.command import all_problems
from locore_lab.fidelity.entries import all_entries
from locore_lab.fidelity.tables import (
    NEGLIGIBLE,
    Point,
    at,
    calibration,
    is_peer,
    report,
    summary,
    worse_than_smc,
    write_results,
)

from lab_tests.fidelity.laws import row

SETTINGS = {"quick": True}


def table(rows):
    """What is written, and the lines of the table."""
    record = {"calibration": calibration(rows), "tables": {}}
    record["summary"] = {measure: summary(rows, measure) for measure in ("tv", "rmse")}
    record["worse_than_smc"] = {axis: worse_than_smc(rows, axis) for axis in ("budget", "lm_contexts")}
    return report(rows, record).splitlines()


def test_all_of_our_samplers_and_no_others_are_ours():
    ours = {name for name in all_entries() if not is_peer(name)}
    assert {"swor", "twisted + table, 1 block", "twisted, learned", "lcr", "lcr-exact", "auto"} <= ours
    assert not ours & {"masking, unweighted", "masked", "masked-is", "smc", "awrs", "rejection", "cars", "oversampling"}
    assert is_peer("genlm-smc") and is_peer("transformers-masking")


# Curves


def test_between_two_measurements_a_curve_is_a_line_on_logarithmic_scales():
    curve = [Point(10, 0.4, 0.1), Point(40, 0.1, 0.025)]
    assert at(curve, 10) == curve[0] and at(curve, 40) == curve[1]
    assert at(curve, 20) == pytest.approx(Point(20, 0.2, 0.05))
    assert at(curve, 9.9) is at(curve, 40.1) is at([], 1) is None


@given(
    st.lists(st.tuples(st.floats(1, 1e4), st.floats(0, 1)), min_size=1, max_size=5, unique_by=lambda pair: pair[0]), st.data()
)
def test_a_curve_stays_between_its_measurements(points, data):
    curve = [Point(cost, value, 0.0) for cost, value in sorted(points)]
    cost = data.draw(st.floats(curve[0].cost, curve[-1].cost))
    found = at(curve, cost)
    assert min(p.value for p in curve) - 1e-9 <= found.value <= max(NEGLIGIBLE, *(p.value for p in curve)) + 1e-9


# Means and ratios


def test_means_and_ratios_by_hand():
    rows = [
        row("a", "masked", 20, 0.4), row("a", "smc", 20, 0.2), row("a", "swor", 20, 0.1),
        row("a", "masked", 80, 0.1), row("a", "smc", 80, 0.2), row("a", "swor", 80, 0.02),
        row("b", "masked", 20, 0.9), row("b", "swor", 20, 0.9),
    ]  # fmt: skip
    found = summary(rows, "tv")
    assert found["swor"]["cells"] == 3 and found["smc"]["cells"] == 2
    assert found["swor"]["mean"] == pytest.approx((0.1 * 0.02 * 0.9) ** (1 / 3))
    assert found["swor"]["budget"] == {"ratio": pytest.approx((0.5 * 0.2 * 1.0) ** (1 / 3)), "cells": 3}
    assert found["smc"]["budget"]["ratio"] == pytest.approx((1.0 * 2.0) ** (1 / 2))
    assert [found[name]["peer"] for name in ("masked", "smc", "swor")] == [True, True, False]


def test_at_equal_contexts_peers_are_read_between_their_measurements():
    rows = [row("a", "smc", 20, 0.4, contexts=10), row("a", "smc", 80, 0.1, contexts=40)]
    rows += [row("a", "swor", 20, 0.1, contexts=20), row("a", "swor", 80, 0.01, contexts=80)]
    found = summary(rows, "tv")["swor"]
    assert found["lm_contexts"] == {"ratio": pytest.approx(0.5), "cells": 1}  # .2 at 20 contexts; nothing is known at 80
    assert found["budget"]["cells"] == 2


def test_what_is_below_the_noise_is_no_better_than_the_noise():
    rows = [row("a", "smc", 20, 0.2), row("a", "swor", 20, 1e-5, noise=0.1)]
    assert summary(rows, "tv")["swor"]["budget"]["ratio"] == pytest.approx(0.5)


def test_a_sampler_that_is_exact_on_one_problem_does_not_win_by_it_alone():
    rows = [row(p, "smc", 20, 0.1) for p in "abc"] + [row(p, "swor", 20, 0.9) for p in "ab"]
    exact = row("c", "swor", 20, 1e-15, noise=0.0)
    ratio = summary([*rows, exact], "tv")["swor"]["budget"]["ratio"]
    assert ratio == pytest.approx((9 * 9 * NEGLIGIBLE / 0.1) ** (1 / 3))


def test_problems_without_a_total_variation_are_judged_by_the_evidence():
    rows = [row("a", "smc", 20, 0.2), row("a", "swor", 20, 0.1)]
    flat = [row("flat", "smc", 20, None, rmse=2.0), row("flat", "swor", 20, None, rmse=1.0)]
    flat.append(row("flat", "masking, unweighted", 20, None, rmse=None))
    assert summary(rows + flat, "tv") == summary(rows, "tv")
    assert summary(rows + flat, "rmse")["swor"]["budget"] == {"ratio": pytest.approx(0.5), "cells": 1}
    assert set(summary(rows + flat, "rmse")) == {"smc", "swor"}


# Never worse than SMC?


def test_worse_than_smc_is_only_what_noise_does_not_explain():
    rows = [row("a", "smc", 20, 0.3, noise=0.05), row("a", "swor", 20, 0.39, noise=0.05)]
    rows += [row("a", "smc", 80, 0.1, noise=0.01), row("a", "swor", 80, 0.2, noise=0.05)]
    found = worse_than_smc(rows, "budget")["swor"]
    assert found["compared"] == 2
    assert [(cell["cost"], cell["value"], cell["smc"]) for cell in found["worse"]] == [(80, 0.2, 0.1)]


def test_smc_is_the_best_of_its_variants_at_that_price():
    rows = [row("a", "smc", 20, 0.9), row("a", "smc, 1 block", 20, 0.1), row("a", "swor", 20, 0.5)]
    assert len(worse_than_smc(rows, "budget")["swor"]["worse"]) == 1
    assert len(worse_than_smc(rows[::2], "budget")["swor"]["worse"]) == 0
    assert "smc" not in worse_than_smc(rows, "budget")


def test_worse_than_smc_at_equal_contexts():
    """SMC with many particles on few contexts is better there, though not at equal budget."""
    rows = [row("a", "smc", 20, 0.5, contexts=5), row("a", "smc", 80, 0.05, contexts=20)]
    rows += [row("a", "swor", 20, 0.2, contexts=20), row("a", "swor", 80, 0.02, contexts=80)]
    assert worse_than_smc(rows, "budget")["swor"] == {"compared": 2, "worse": []}
    at_equal = worse_than_smc(rows, "lm_contexts")["swor"]
    assert at_equal["compared"] == 1 and at_equal["worse"][0]["smc"] == 0.05


def test_worse_than_smc_by_the_evidence():
    rows = [row("a", "smc", 20, None, rmse=1.0, rmse_error=0.1), row("a", "swor", 20, None, rmse=1.3, rmse_error=0.1)]
    assert worse_than_smc(rows, "budget")["swor"]["worse"] == []
    rows[1]["rmse"] = 1.5
    assert worse_than_smc(rows, "budget")["swor"]["worse"][0]["measure"] == "rmse"


# Calibration


def test_calibration_counts_trust_where_the_law_is_wrong():
    rows = [row("a", "smc", 20, 0.5, verdicts={"trust": 3, "rough": 1}), row("a", "smc", 80, 0.05, verdicts={"trust": 5})]
    rows += [row("a", "swor", 20, 0.11, noise=0.05, verdicts={"trust": 2}), row("b", "smc", 20, None, verdicts={"trust": 9})]
    assert calibration(rows) == {"trust": 10, "trust_but_wrong": 5, "share": 0.5, "wrong_beyond_noise": 3}
    assert calibration([])["share"] is None


def test_calibration_leaves_out_cells_in_which_runs_return_nothing():
    """Their TV is of all runs, and a verdict is on what a run returns."""
    rows = [row("a", "rejection", 20, 0.9, verdicts={"trust": 3}), row("a", "swor", 20, 0.01, verdicts={"trust": 2})]
    rows[0]["failed"] = 0.5
    assert calibration(rows) == {"trust": 2, "trust_but_wrong": 0, "share": 0.0, "wrong_beyond_noise": 0}


# What is written


def test_results_hold_every_row_and_are_json(tmp_path):
    rows = [row("tiny-end2", "smc", 20, 0.5), row("tiny-end2", "swor", 20, None, rmse=1.0)]
    problems = [p for p in all_problems(True, 0, 0, None) if p.name == "tiny-end2"]
    write_results(tmp_path, rows, problems, {"tiny": {"lm_tokens": 4000.0, "cpu_seconds": 1.0}}, SETTINGS)
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["rows"] == rows
    assert record["problems"]["tiny-end2"]["length"] == 2
    assert "4,000 LM tokens" in (tmp_path / "table.md").read_text()


def test_tables_are_rectangular_and_show_every_row():
    rows = [
        row(problem, sampler, budget, None if problem == "flat" else 0.1 * k + 0.01)
        for problem in ("a", "flat")
        for k, sampler in enumerate(["smc", "masked", "swor", "twisted + table", "masking, unweighted"])
        for budget in (20, 80)
    ]
    lines = table(rows)
    width = 0
    for line in lines:
        cells = line.count("|")
        assert not width or not cells or cells == width, line
        width = cells
    full = [line for line in lines if line.count("|") == 16 and not line.startswith(("| ---", "| sampler"))]
    assert len(full) == len(rows)
    assert any(re.search(r"100 most probable sequences hold \d+%", line) for line in lines)


def test_the_table_of_one_problem_has_both_axes():
    rows = [row("a", "smc", 20, 0.4, contexts=10), row("a", "smc", 80, 0.1, contexts=40)]
    rows += [row("a", "swor", 20, 0.3, contexts=20), row("a", "swor", 80, 0.01, contexts=80)]
    text = "\n".join(table(rows))
    assert "| smc | 0.4000 | 0.1000 |\n| swor | **0.3000** | **0.0100** |" in text
    tv_20 = 0.4 * (0.1 / 0.4) ** 0.5
    tv_50 = 0.3 * (0.01 / 0.3) ** (math.log(50 / 20) / math.log(4))
    assert f"| smc | **0.4000** | **{tv_20:.4f}** | – |\n| swor | – | 0.3000 | **{tv_50:.4f}** |" in text


def test_a_table_of_nothing_measured_is_written_too():
    assert table([])[0] == "# Fidelity"
