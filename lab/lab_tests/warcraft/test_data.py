"""Maps, paths and files of the Warcraft experiment."""

import itertools
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from locore_lab.shared import SHARED
from locore_lab.warcraft import paths as p
from locore_lab.warcraft.dataset import generate_maps, grade, labelled, load_maps
from locore_lab.warcraft.paths import EDGES, MOVES_TO_8, SPARE
from locore_lab.warcraft.terrain import EARTH, FOREST, MEAN_RGB, ROCK, TILE, WATER, WEIGHTS, draw_maps, draw_terrain

from locore.kernel.errors import InvalidArgument

REAL = SHARED / "data" / "warcraft" / "real_example_train10.json"

weights = st.tuples(st.integers(2, 4), st.integers(2, 4)).flatmap(
    lambda size: st.lists(st.sampled_from(WEIGHTS), min_size=size[0] * size[1], max_size=size[0] * size[1]).map(
        lambda flat: np.array(flat).reshape(size)
    )
)


def simple_paths(height: int, width: int, diagonal: bool = True):
    """Every simple path between the corners, by plain recursion; on request without diagonal steps."""

    def grow(path):
        if path[-1] == (height - 1, width - 1):
            yield tuple(path)
            return
        for down, right in itertools.product((-1, 0, 1), repeat=2):
            if not diagonal and down and right:
                continue
            cell = (path[-1][0] + down, path[-1][1] + right)
            if cell not in path and 0 <= cell[0] < height and 0 <= cell[1] < width:
                yield from grow([*path, cell])

    return grow([(0, 0)])


def straight_paths(side: int):
    """Those without diagonal steps, on a square."""
    return list(simple_paths(side, side, diagonal=False))


def cost(grid, cells) -> int:
    """In tenths, as whole numbers."""
    return sum(round(10 * grid[cell]) for cell in cells)


def path_cost(grid, cells) -> float:
    return sum(int(p.integer_weights(grid)[cell]) for cell in cells) / 100


def reference_label(grid) -> set:
    """Transcript of the rule in words: settle the cheapest open cell, smallest (row, column) first among equals; a cell's
    predecessor is the settled neighbour that first offered it its final cost."""
    height, width = grid.shape
    best, before, settled = {(0, 0): cost(grid, [(0, 0)])}, {}, set()
    while (height - 1, width - 1) not in settled:
        cell = min((value, cell) for cell, value in best.items() if cell not in settled)[1]
        settled.add(cell)
        for other in itertools.product(range(height), range(width)):
            near = max(abs(other[0] - cell[0]), abs(other[1] - cell[1])) == 1
            total = best[cell] + cost(grid, [other])
            if near and other not in settled and total < best.get(other, total + 1):
                best[other], before[other] = total, cell
    path = {(height - 1, width - 1)}
    cell = (height - 1, width - 1)
    while cell != (0, 0):
        cell = before[cell]
        path.add(cell)
    return path


@given(weights)
def test_the_label_is_the_one_of_the_rule(grid):
    cells = p.shortest_path(grid)
    assert p.is_valid_path(cells, *grid.shape)
    assert set(cells) == reference_label(grid)


@given(weights.filter(lambda grid: grid.size <= 9))
def test_no_path_is_cheaper_and_all_equals_are_accepted(grid):
    every = list(simple_paths(*grid.shape))
    least = min(cost(grid, cells) for cells in every)
    assert cost(grid, p.shortest_path(grid)) == least
    assert path_cost(grid, p.shortest_path(grid)) == pytest.approx(least / 10)
    for cells in every:
        assert p.is_minimum_cost(grid, cells) == (cost(grid, cells) == least)


def test_ties_go_to_the_smaller_cell():
    """Around a rock in the middle all ways cost the same; the upper right one is settled first."""
    grid = np.array([[0.8, 0.8, 0.8], [0.8, 9.2, 0.8], [0.8, 0.8, 0.8]])
    assert p.shortest_path(grid) == ((0, 0), (0, 1), (1, 2), (2, 2))
    assert p.is_minimum_cost(grid, ((0, 0), (1, 0), (2, 1), (2, 2)))
    assert not p.is_minimum_cost(grid, ((0, 0), (1, 1), (2, 2)))


def test_costs_that_are_equal_stay_equal_in_half_precision():
    """Three cells of grass cost two of earth, 2.4, but not in float16."""
    grid = np.full((3, 4), 9.2)
    grid[0] = [1.2, 1.2, 1.2, 1.2]
    grid[1, 3], grid[2] = 0.8, [0.8, 0.8, 0.8, 0.8]
    first, second = ((0, 0), (0, 1), (0, 2), (1, 3), (2, 3)), ((0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (2, 3))
    assert p.is_minimum_cost(grid, first) == p.is_minimum_cost(grid.astype(np.float16), first)
    assert path_cost(grid.astype(np.float16), second) == path_cost(grid, second) == pytest.approx(6.4)
    assert p.integer_weights(np.array(WEIGHTS, dtype=np.float16).reshape(1, -1).repeat(2, 0))[0].tolist() == [
        80,
        120,
        530,
        770,
        920,
    ]


@given(
    st.tuples(st.integers(2, 4), st.integers(2, 3)).flatmap(
        lambda size: st.sampled_from([*simple_paths(*size)]).map(lambda cells: (size, cells))
    )
)
def test_moves_and_cells_are_the_same_path(case):
    (height, width), cells = case
    tokens = p.moves_of(cells)
    assert tokens[-1] == p.STOP and p.STOP not in tokens[:-1]
    assert p.cells_of(tokens) == p.cells_of(p.moves_of(cells, len(tokens) + 3)) == cells
    assert p.is_valid_path(cells, height, width)


@given(weights)
def test_a_label_can_be_read_back(grid):
    cells = p.shortest_path(grid)
    assert p.cells_of_mask(p.mask_of(cells, *grid.shape)) == cells


@pytest.mark.parametrize(
    "cells",
    [
        (),
        ((0, 0), (1, 1)),  # does not arrive
        ((0, 1), (1, 1), (2, 2)),  # starts elsewhere
        ((0, 0), (2, 2)),  # jumps
        ((0, 0), (0, 1), (1, 1), (0, 0), (1, 1), (2, 2)),  # crosses itself
        ((0, 0), (-1, 1), (0, 2), (1, 2), (2, 2)),  # leaves the grid
    ],
)
def test_what_is_no_path(cells):
    assert not p.is_valid_path(cells, 3, 3)
    assert not p.is_minimum_cost(np.full((3, 3), 0.8), cells)


@pytest.mark.parametrize(
    "mask", [np.zeros((3, 3)), np.ones((3, 3)), np.diag([1, 1, 0]), np.full((3, 3), 2), np.ones(9), np.diag([1, 0, 1])]
)
def test_a_matrix_that_is_no_label_is_refused(mask):
    with pytest.raises(InvalidArgument):
        p.cells_of_mask(mask)


@pytest.mark.parametrize("bad", [-0.8, np.nan, np.inf])
def test_costs_that_are_none_are_refused(bad):
    grid = np.full((3, 3), 0.8)
    grid[1, 2] = bad
    with pytest.raises(InvalidArgument, match=r"\(1, 2\)"):
        p.shortest_path(grid)


@pytest.mark.parametrize("shape", [(9,), (1, 3), (2, 2, 2)])
def test_what_is_no_grid_is_refused(shape):
    with pytest.raises(InvalidArgument, match="grid"):
        p.shortest_path(np.full(shape, 0.8))


def test_a_path_longer_than_the_horizon_is_refused():
    with pytest.raises(InvalidArgument, match="3 tokens, not 2"):
        p.moves_of(((0, 0), (1, 1), (2, 2)), 2)
    with pytest.raises(InvalidArgument, match="no neighbours"):
        p.moves_of(((0, 0), (2, 2)))


@pytest.mark.skipif(not REAL.is_file(), reason="the real sample is not here")
def test_the_real_sample():
    sample = json.loads(REAL.read_text())
    grid, mask = np.array(sample["weights"]), np.array(sample["shortest_path"])
    cells = p.shortest_path(grid)
    assert (p.mask_of(cells, 12, 12) == mask).all()
    assert path_cost(grid, cells) == sample["optimal_cost_8_neighbourhood"] == 12.4
    assert p.moves_of(cells) == [p.MOVES.index((1, 1))] * 11 + [p.STOP]


def test_the_generator_is_determined_by_its_seed():
    images, grids = draw_maps(5, seed=3)
    again = draw_maps(8, seed=3)
    assert (images == again[0][:5]).all() and (grids == again[1][:5]).all()
    for other in (draw_maps(5, seed=4), draw_maps(5, seed=3, split="val")):
        assert not (grids == other[1]).all(), "another seed or split gives other maps"
    assert len({grid.tobytes() for grid in again[1]}) == 8


@pytest.mark.parametrize("size", [(2, 2), (5, 9), (12, 12)])
def test_maps_of_any_size(size):
    maps = generate_maps(3, seed=0, height=size[0], width=size[1])
    assert maps.images.shape == (3, TILE * size[0], TILE * size[1], 3) and maps.images.dtype == np.uint8
    assert (maps.height, maps.width) == size
    assert set(np.unique(maps.weights)) <= set(WEIGHTS)


def test_the_picture_shows_the_weights():
    """Mean colours over many tiles are those of the real tiles: a channel is off by less than 12 of 255."""
    images, grids = draw_maps(60, seed=0)
    tiles = images.reshape(60, 12, TILE, 12, TILE, 3).transpose(0, 1, 3, 2, 4, 5)
    for weight, colour in zip(WEIGHTS, MEAN_RGB, strict=True):
        assert np.abs(tiles[grids == weight].mean((0, 1, 2)) - colour).max() < 12


def test_water_and_rock_lie_inside_earth():
    for index in range(50):
        terrain = draw_terrain(np.random.default_rng(index), 12, 12)
        around = np.lib.stride_tricks.sliding_window_view(np.pad(terrain, 1, constant_values=EARTH), (3, 3))
        lakes = np.isin(terrain, (WATER, ROCK))
        assert np.isin(around[lakes], (EARTH, WATER, ROCK)).all()
        assert not (around[terrain == FOREST] == EARTH).all((1, 2)).any(), "forest has grass or forest beside it"


def test_turned_maps_have_labels_of_their_own():
    maps = generate_maps(4, seed=1, height=4, width=4)
    seen = [maps.turned(symmetry) for symmetry in range(4)]
    for view in seen:
        for before, after, label, image in zip(maps.weights, view.weights, view.labels, view.images, strict=True):
            assert path_cost(before, p.shortest_path(before)) == path_cost(after, p.shortest_path(after))
            assert set(p.cells_of_mask(label)) == set(p.shortest_path(after))
            assert image.shape == (TILE * 4, TILE * 4, 3)
    assert (seen[1].weights == maps.weights.swapaxes(1, 2)).all() and (seen[1].images == maps.images.swapaxes(1, 2)).all()
    assert (seen[2].weights == maps.weights[:, ::-1, ::-1]).all()


def test_the_horizon_leaves_room():
    maps = generate_maps(6, seed=1, height=5, width=5)
    assert maps.horizon == max(max(map(len, maps.paths)) + SPARE, 10)
    assert maps.tokens(maps.horizon).shape == (6, maps.horizon)
    with pytest.raises(InvalidArgument, match="tokens"):
        maps.tokens(2)


def test_edge_bits_are_a_path_where_the_constraint_says_so():
    """All 4,096 assignments of the 12 edges of a 3 × 3 grid; there are 12 simple paths between its corners."""
    alpha, found = EDGES.constraint(3, 3).bind(EDGES.tokenizer), []
    for bits in itertools.product((0, 1), repeat=12):
        cells = EDGES.path(bits, 3, 3)
        assert (cells is not None) == alpha.evaluate(list(bits), EDGES.tokenizer)
        if cells is not None:
            found.append(cells)
            assert EDGES.tokens(cells, 3, 3, 12) == list(bits)
    straight = straight_paths(3)
    assert sorted(found) == sorted(straight) and len(found) == 12
    with pytest.raises(InvalidArgument, match="four"):
        EDGES.tokens(((0, 0), (1, 1), (2, 2)), 3, 3, 12)
    with pytest.raises(InvalidArgument, match="12 edges, not 11"):
        EDGES.tokens(found[0], 3, 3, 11)


def test_labels_of_edges_are_cheapest_among_paths_without_diagonals():
    maps = generate_maps(12, seed=2, height=4, width=4, encoding=EDGES)
    straight = straight_paths(4)
    for index, path in enumerate(maps.paths):
        assert path in straight and cost(maps.weights[index], path) == min(
            cost(maps.weights[index], other) for other in straight
        )
    assert grade(maps.tokens(maps.horizon), maps).equal.all()
    assert maps.written(MOVES_TO_8).tokens(20).max() == p.STOP and maps.written(EDGES) is maps


def test_grades():
    """On uniform ground: the diagonal is cheapest, a detour is valid, what does not arrive is neither."""
    flat = labelled(np.zeros((1, 24, 24, 3), dtype=np.uint8), np.full((1, 3, 3), 0.8))
    maps = type(flat)(*(np.repeat(part, 4, 0) for part in (flat.images, flat.weights, flat.labels)))
    sequences = [((0, 0), (1, 1), (2, 2)), ((0, 0), (0, 1), (1, 2), (2, 2)), ((0, 0), (1, 1)), ((0, 0), (0, -1))]
    tokens = torch.tensor([p.moves_of(cells, 5) for cells in sequences])
    grades = grade(tokens, maps)
    assert grades.exact.tolist() == [True, False, False, False] == grades.equal.tolist()
    assert grades.consistent.tolist() == [True, True, False, False]
    assert grades.rates() == {"consistent": 0.5, "exact": 0.25, "equal": 0.25}


def test_another_cheapest_path_is_exact_but_not_equal():
    grid = np.array([[[0.8, 0.8, 0.8], [0.8, 9.2, 0.8], [0.8, 0.8, 0.8]]])
    maps = labelled(np.zeros((1, 24, 24, 3), dtype=np.uint8), grid)
    grades = grade(torch.tensor([p.moves_of(((0, 0), (1, 0), (2, 1), (2, 2)))]), maps)
    assert grades.rates() == {"consistent": 1.0, "exact": 1.0, "equal": 0.0}
    with pytest.raises(InvalidArgument, match="2 sequences for 1 maps"):
        grade(torch.zeros(2, 3, dtype=torch.int64), maps)


@pytest.fixture
def folder(tmp_path):
    """Files in the format of the original data: float16 weights, uint8 labels and pictures."""
    maps = generate_maps(4, seed=0, split="val")
    np.save(tmp_path / "val_maps.npy", maps.images)
    np.save(tmp_path / "val_vertex_weights.npy", maps.weights.astype(np.float16))
    np.save(tmp_path / "val_shortest_paths.npy", maps.labels)
    return tmp_path


def test_original_files_are_read(folder):
    written, read = generate_maps(4, seed=0, split="val"), load_maps(folder, "val")
    assert read.weights.dtype == np.float16
    assert (read.images == written.images).all() and (read.labels == written.labels).all() and read.paths == written.paths
    assert np.abs(read.weights - written.weights).max() < 0.005
    change(folder, "val_shortest_paths.npy", lambda labels: labels.astype(np.float32))
    assert (load_maps(folder, "val").labels == written.labels).all()


def change(folder, name, function):
    np.save(folder / name, function(np.load(folder / name)))


def negative(values):
    values[2, 3, 4] = -1.2
    return values


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("val_maps.npy", lambda a: a[:3]),
        ("val_maps.npy", lambda a: a.transpose(0, 3, 1, 2)),
        ("val_maps.npy", lambda a: a.astype(np.float32)),
        ("val_vertex_weights.npy", lambda a: a[0]),
        ("val_vertex_weights.npy", lambda a: a[:0]),
        ("val_vertex_weights.npy", negative),
        ("val_shortest_paths.npy", lambda a: a[:, :-1]),
        ("val_shortest_paths.npy", lambda a: 1 - a),
        ("val_shortest_paths.npy", lambda a: a[::-1]),  # those of other maps
    ],
)
def test_files_of_another_kind_are_refused(folder, name, function):
    change(folder, name, function)
    with pytest.raises(InvalidArgument, match="split 'val'"):
        load_maps(folder, "val")


def test_files_that_cannot_be_read_are_refused(folder):
    whole = (folder / "val_maps.npy").read_bytes()
    for content in (whole[:-5], b""):
        (folder / "val_maps.npy").write_bytes(content)
        with pytest.raises(InvalidArgument, match="split 'val'"):
            load_maps(folder, "val")
    np.save(folder / "val_maps.npy", np.array([{}]), allow_pickle=True)
    for split in ("val", "train", "dev"):
        with pytest.raises(InvalidArgument, match=split):
            load_maps(folder, split)


def test_other_wrong_arguments():
    for call in (
        lambda: draw_maps(0, seed=0),
        lambda: draw_maps(1, seed=0, split="dev"),
        lambda: draw_maps(1, seed=0, height=1),
        lambda: generate_maps(2, seed=0).first(3),
    ):
        with pytest.raises(InvalidArgument):
            call()
