"""Pictures: every sampler is in them and named, the same data give the same file."""

from __future__ import annotations

import pytest
from locore_lab.fidelity.entries import all_entries
from locore_lab.fidelity.plots import COLOURS, is_variant, look, overview_figure, plot, problem_figure, settings
from locore_lab.fidelity.tables import is_peer

from lab_tests.fidelity.laws import row

SAMPLERS = list(all_entries())


def rows_of(problem="a", samplers=SAMPLERS, tv=0.5):
    """Cells in which all samplers are almost alike, so that all names want the same place."""
    return [
        row(problem, sampler, budget, tv and tv / budget + 1e-5 * k, contexts=budget / 2 + k)
        for k, sampler in enumerate(samplers)
        for budget in (20, 80, 400)
    ]


# Looks


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_peers_are_grey_and_dashed_and_ours_are_coloured(sampler):
    style = look(sampler)
    assert (style.colour not in COLOURS.values()) == is_peer(sampler)
    if is_peer(sampler):
        red, green, blue = (int(style.colour[k : k + 2], 16) for k in (1, 3, 5))
        assert red == green == blue and style.dashes != "-"
    elif not is_variant(sampler):
        assert style.dashes == "-" and style.width > look("smc").width


def test_our_main_samplers_differ_in_colour():
    main = [name for name in SAMPLERS if not is_peer(name) and not is_variant(name)]
    assert len({look(name).colour for name in main}) == len(main)


# Figures


@pytest.fixture
def matplotlib():
    return pytest.importorskip("matplotlib")


@pytest.mark.parametrize("tv", [0.5, None])
def test_every_sampler_is_named_once_and_drawn_on_each_axis(matplotlib, tv):
    with settings():
        figure = problem_figure(rows_of(tv=tv))
    assert sorted(text.get_text() for text in figure.legends[0].get_texts()) == sorted(SAMPLERS)
    for panel in figure.axes:
        assert {line.get_label() for line in panel.lines} >= set(SAMPLERS)


def test_values_of_zero_stand_on_the_lower_edge(matplotlib):
    with settings():
        figure = problem_figure([row("a", "exact", 20, 0.0, noise=0.0), row("a", "smc", 20, 0.5)])
    low, high = figure.axes[0].get_ylim()
    drawn = [y for line in figure.axes[0].lines for y in line.get_ydata()]
    assert low > 0 and all(low <= y <= high for y in drawn) and low in drawn


def test_the_overview_has_only_samplers_that_were_measured_on_every_problem(matplotlib):
    rows = rows_of("a", ["smc", "swor", "swor, 1 block", "lcr"]) + rows_of("b", ["smc", "swor", "swor, 1 block"])
    rows += rows_of("flat", ["smc"], tv=None)
    with settings():
        figure = overview_figure(rows)
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"smc", "swor"}


def test_files_for_every_problem_that_are_the_same_each_time(matplotlib, tmp_path):
    rows = rows_of("a", ["smc", "swor"]) + rows_of("flat", ["smc", "masking, unweighted"], tv=None)
    for sampler in rows:
        if sampler["sampler"] == "masking, unweighted":
            sampler |= {"rmse": None, "rmse_error": None}
    first, second = (plot(rows, tmp_path / name) for name in ("first", "second"))
    assert sorted(path.name for path in first) == ["a.svg", "flat.svg", "overview.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert b"font-size" not in first[0].read_bytes()  # letters are drawn: they look alike wherever it is opened


def test_a_problem_with_one_cell_and_nothing_but_failures(matplotlib, tmp_path):
    assert plot([row("a", "rejection", 20, 1.0, failed=1.0, rmse=9.0)], tmp_path)
    assert plot([row("a", "masking, unweighted", 20, None, rmse=None)], tmp_path) == []
    assert plot([], tmp_path) == []
