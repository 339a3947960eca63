"""Pictures: every sampler is in them and named, names do not overlap, the same data give the same file."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from locore_lab.fidelity.entries import all_entries
from locore_lab.fidelity.measures import histogram
from locore_lab.fidelity.plots import COLOURS, is_variant, look, overview_figure, plot, problem_figure, settings, spread
from locore_lab.fidelity.tables import is_peer

from lab_tests.fidelity.laws import row

SAMPLERS = list(all_entries())


def rows_of(problem="a", samplers=SAMPLERS, tv=0.5):
    """Cells in which all samplers are almost alike, so that all names want the same place."""
    bars = {"start": -25.0, "step": 1.0, "counts": [3] * 24 + [28]}
    return [
        row(problem, sampler, budget, tv and tv / budget + 1e-5 * k, contexts=budget / 2 + k, log_weights=bars)
        for k, sampler in enumerate(samplers)
        for budget in (20, 80, 400)
    ]


# Placing names

places = st.lists(st.floats(-50, 150), max_size=30)


@given(places, st.floats(0.1, 20))
def test_spread_places_keep_their_order_their_distance_and_the_bounds(wanted, gap):
    found = spread(wanted, gap, 0.0, 100.0)
    assert all(-1e-9 <= place <= 100 + 1e-9 for place in found)
    apart = min(gap, 100 / max(len(wanted) - 1, 1))
    ordered = sorted(found)
    assert all(b - a >= apart - 1e-9 for a, b in itertools.pairwise(ordered))
    for (a, x), (b, y) in itertools.combinations(zip(wanted, found, strict=True), 2):
        assert a == b or (a < b) == (x < y)


def test_names_that_do_not_collide_stay_where_they_are():
    assert spread([10, 50, 30], 5, 0, 100) == [10, 50, 30]
    assert spread([50, 50], 10, 0, 100) == [50, 60]
    assert spread([100, 100], 10, 0, 100) == [90, 100]


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


# Histograms


@given(st.lists(st.floats(-500, 10), min_size=1, max_size=50), st.floats(-50, 0))
def test_histograms_hold_every_weight(weights, log_z):
    found = histogram(weights, log_z)
    assert sum(found["counts"]) == len(weights)
    low, high = min(weights) - log_z, max(weights) - log_z
    assert found["start"] == pytest.approx(low, abs=1e-4)
    assert found["start"] + len(found["counts"]) * found["step"] >= high - 0.01
    assert found["counts"][0] > 0 and found["counts"][-1] > 0


def test_no_histogram_of_nothing():
    assert histogram([], -1.0) is None


# Figures


@pytest.fixture
def matplotlib():
    return pytest.importorskip("matplotlib")


def boxes(panel, figure):
    """The places of the names, in pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    # The extent of the text alone, without the line that leads to it.
    return {text.get_text(): text.get_bbox_patch() or _extent(text, renderer) for text in panel.texts}


def _extent(text, renderer):
    from matplotlib.text import Text

    text.update_positions(renderer)
    return Text.get_window_extent(text, renderer)


@pytest.mark.parametrize("tv", [0.5, None])
def test_every_sampler_is_named_once_on_each_axis_and_no_names_overlap(matplotlib, tv):
    with settings():
        figure = problem_figure(rows_of(tv=tv))
        left, right = figure.axes
        for panel in (left, right):
            found = {name: box for name, box in boxes(panel, figure).items() if name in SAMPLERS}
            assert set(found) == set(SAMPLERS)
            lines = sorted(found.values(), key=lambda box: box.y0)
            assert all(b.y0 >= a.y1 - 0.4 * (a.y1 - a.y0) for a, b in itertools.pairwise(lines))
            edge = right.get_window_extent().x0 if panel is left else figure.bbox.x1
            assert max(box.x1 for box in lines) <= edge


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
    assert [{text.get_text() for text in panel.texts} for panel in figure.axes] == [{"smc", "swor"}] * 2


def test_files_for_every_problem_that_are_the_same_each_time(matplotlib, tmp_path):
    rows = rows_of("a", ["smc", "swor"]) + rows_of("flat", ["smc", "masking, unweighted"], tv=None)
    for sampler in rows:
        if sampler["sampler"] == "masking, unweighted":
            sampler |= {"rmse": None, "rmse_error": None, "log_weights": None}
    first, second = (plot(rows, tmp_path / name) for name in ("first", "second"))
    assert sorted(path.name for path in first) == [
        "a-weights.svg", "a.svg", "flat-weights.svg", "flat.svg", "overview.svg",
    ]  # fmt: skip
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert b"font-size" not in first[0].read_bytes()  # letters are drawn: they look alike wherever it is opened


def test_a_problem_with_one_cell_and_nothing_but_failures(matplotlib, tmp_path):
    assert plot([row("a", "rejection", 20, 1.0, failed=1.0, rmse=9.0)], tmp_path)
    assert plot([row("a", "masking, unweighted", 20, None, rmse=None)], tmp_path) == []
    assert plot([], tmp_path) == []
