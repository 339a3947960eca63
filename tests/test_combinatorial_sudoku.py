"""Sudoku: exact counts, what is refused and how it is said, JSON forms, budgets."""

from __future__ import annotations

import csv
import json
import pickle
from itertools import permutations, product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import locore
from locore.circuits.downward import allowed_by_conditioning
from locore.compilers import compile, stored
from locore.compilers.compile import compile_and_tell
from locore.constraints import contains, from_json, token
from locore.kernel.errors import BudgetExceeded, InvalidConstraint, Unsatisfiable, UnsupportedKeyword
from locore.kernel.limits import Limits
from locore.kernel.tokenizer import Tokenizer
from locore.puzzles.combinatorial import (
    all_different,
    all_equal,
    at_least,
    at_most,
    digit_sum,
    exactly,
    permutation,
    sudoku,
    token_sum,
)
from locore.testing import check
from tests.effort import examples

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "sudoku"
TEXT = Tokenizer.from_tokens([*map(str, range(10)), "1", "x", "00", None], eos_ids=(13,))  # two spellings of 1


def solutions(box=2):
    """All grids of 4 × 4, by rows that are permutations: no propagation, no circuit."""
    rows = list(permutations(range(1, 5)))
    for grid in product(rows, repeat=4):
        columns = all(len({row[c] for row in grid}) == 4 for c in range(4))
        corners = [(r, c) for r in (0, 2) for c in (0, 2)]
        if columns and all(len({grid[r + i][c + j] for i in (0, 1) for j in (0, 1)}) == 4 for r, c in corners):
            yield tuple(value for row in grid for value in row)


GRIDS = list(solutions())


@settings(max_examples=examples(20))
@given(st.sampled_from(GRIDS), st.sets(st.integers(0, 15)), st.booleans())
def test_the_models_are_the_solutions(grid, given_cells, text):
    givens = [value if cell in given_cells else 0 for cell, value in enumerate(grid)]
    expected = {g for g in GRIDS if all(g[cell] == grid[cell] for cell in given_cells)}
    spelled = "".join(map(str, givens)).replace("0", ".")
    alpha = sudoku(spelled, box=2)
    circuit = compile(alpha, 4, 16, use_cache=False)
    assert circuit.count() == len(expected)
    grids = torch.tensor(GRIDS) - 1
    assert circuit.accepts(grids).tolist() == [g in expected for g in GRIDS]
    assert [alpha.evaluate([v - 1 for v in g]) for g in GRIDS[::9]] == [g in expected for g in GRIDS[::9]]
    for g in list(expected)[:3]:  # fifteen cells leave one value
        assert circuit.allowed(torch.tensor(g[:15]) - 1).nonzero().tolist() == [[g[15] - 1]]
    check(circuit, num_models=16)
    if text:
        # Every grid has four 1s, each with two spellings.
        assert compile(alpha, TEXT, 17, use_cache=False).count() == len(expected) * 2**4


def test_known_counts():
    assert len(GRIDS) == 288
    assert compile(sudoku("." * 16, box=2), 4, 16).count() == 288
    assert compile(sudoku("." * 4, box=(1, 2)), 2, 4).count() == 2
    assert compile(permutation(range(9), range(9)), 9, 9).count() == 362_880
    assert compile(sudoku("123456" + "." * 30, box=(2, 3)) & permutation([6, 7, 8], [3, 4, 5]), 6, 36).count() > 0


@pytest.mark.parametrize("name", ["multi300.csv", "hardest11.csv", "top95.csv"])
def test_puzzles_of_the_collection(name):
    if not DATA.is_dir():
        pytest.skip("the puzzle collection is not here")
    with open(DATA / name) as file:
        rows = list(csv.DictReader(file))
    for row in rows[:: max(1, len(rows) // 40)]:
        circuit = compile(sudoku(row["puzzle"]), 9, 81, use_cache=False)
        assert circuit.count() == int(row.get("n_solutions") or 1)
        assert circuit.accepts(torch.tensor([[int(c) - 1 for c in row["solution"]]])).all()


def test_a_prefix_is_conditioned_on_as_by_one_upward_and_one_downward_pass():
    circuit = compile(sudoku("1..." + "." * 12, box=2), 4, 16)
    grids = torch.tensor([g for g in GRIDS if g[0] == 1]) - 1
    for time in range(16):
        prefixes = grids[::5, :time]
        prefixes = torch.cat([prefixes, torch.zeros(1, time, dtype=torch.long)])
        assert torch.equal(circuit.allowed(prefixes), allowed_by_conditioning(circuit.chain, prefixes))


@pytest.mark.parametrize(("bound", "most"), [("MOST_STATES", 100), ("MOST_EFFORT", 1000)])
def test_a_reading_with_too_many_or_too_large_states_has_no_table(monkeypatch, bound, most):
    from locore.circuits import reached

    circuit = compile(sudoku("." * 16, box=2), 4, 16, use_cache=False)
    monkeypatch.setattr(reached, bound, most)
    assert not circuit.reader.tabulated
    with pytest.raises(BudgetExceeded, match="too many states for a table"):
        _ = circuit.reader.rows
    assert circuit.allowed(torch.tensor([0, 1])).tolist() == [False, False, True, True]


# What is refused.

WRONG = [
    ("55" + "." * 79, 3, "two 5s in row 1 .row 1, column 1 and row 1, column 2."),
    ("." * 18 + "5......5." + "." * 54, 3, "two 5s in row 3"),
    ("7" + "." * 8 + "7" + "." * 71, 3, "two 7s in column 1"),
    ("3" + "." * 9 + "3" + "." * 70, 3, "two 3s in box 1"),
    ("." * 80, 3, "81 cells, got 80"),
    ("." * 16, 3, "or give box"),
    ([[1, 2], [2, 1]], 2, "4 rows, got 2"),
    ([[0] * 4] * 3 + [[0] * 5], 2, "row 4 of sudoku has 5 cells"),
    ("x" * 81, 3, "'x'"),
    ("9" + "." * 15, 2, "1 to 4"),
    ([[-1] + [0] * 3] + [[0] * 4] * 3, 2, "-1"),
    ([[1.5] + [0] * 3] + [[0] * 4] * 3, 2, "1.5"),
    (5, 3, "string or a list"),
    ("." * 81, "3", "box"),
    ("." * 81, 0, "box"),
    ("." * 81, (3, 3, 3), "box"),
]


@pytest.mark.parametrize(("givens", "box", "message"), WRONG)
def test_wrong_grids(givens, box, message):
    with pytest.raises(InvalidConstraint, match=message):
        sudoku(givens, box)


def test_vocabularies_and_lengths_that_do_not_fit():
    puzzle = sudoku("." * 16, box=2)
    with pytest.raises(InvalidConstraint, match="needs 16 tokens"):
        compile(puzzle, 4, 15)
    with pytest.raises(InvalidConstraint, match="no end of text"):
        compile(puzzle, 4, 17)
    with pytest.raises(InvalidConstraint, match="ids 0 to 3"):
        compile(puzzle, 3, 16)
    joined = Tokenizer.from_tokens(["1", "2", "3", "34", None], eos_ids=(4,))
    with pytest.raises(InvalidConstraint, match="spells exactly 4"):
        compile(puzzle, joined, 16)


def test_no_solution_and_no_budget():
    with pytest.raises(Unsatisfiable, match="sudoku"):
        compile(sudoku("12345678." + "........9" + "." * 63), 9, 81)
    with pytest.raises(BudgetExceeded, match="more givens"):
        compile(sudoku("." * 81), 9, 81, limits=Limits(states=500))
    with pytest.raises(BudgetExceeded, match="nodes"):
        compile(sudoku("." * 81), 9, 81, limits=Limits(nodes=500))
    with pytest.raises(BudgetExceeded, match="seconds"):
        compile(sudoku("." * 81), 9, 81, limits=Limits(seconds=0.05))


BAD = [
    (lambda: all_different([0, 0]), "position 0 twice"),
    (lambda: all_different([0]), "at least 2"),
    (lambda: all_different([0, -1]), "-1"),
    (lambda: all_different("01"), "list of positions"),
    (lambda: all_different([0, 1], [[1], [1, 2]]), "two values"),
    (lambda: all_equal([0, 1], [[]]), "at least one token id"),
    (lambda: all_different([0, 5]).at(3), "outside a sequence of 3"),
    (lambda: permutation([0, 1], [3]), "1 tokens for 2"),
    (lambda: digit_sum([0, 1]), "no bound"),
    (lambda: digit_sum([0, 1], 3, at_least=1), "either"),
    (lambda: digit_sum([0, 1], at_least=4, at_most=1), "nothing"),
    (lambda: digit_sum([0, 1], 3, weights=[1]), "1 weights for 2"),
    (lambda: token_sum([0], {}, 1), "one value"),
    (lambda: token_sum([0], [[1]], 1), "pairs"),
    (lambda: exactly(3, [token(0, 1)]), "k=3 for 1"),
    (lambda: exactly(-1, [token(0, 1)]), "k=-1"),
    (lambda: at_least(1, token(0, 1)), "list of conditions"),
    (lambda: at_most(1, [5]), "got 5"),
    (lambda: compile(digit_sum([0], 1), Tokenizer.from_tokens(["a", "b"]), 2), "no token"),
    (lambda: compile(all_different([0, 1], [9]), 4, 2), "token id 9"),
]


@pytest.mark.parametrize(("build", "message"), BAD)
def test_bad_arguments(build, message):
    with pytest.raises(InvalidConstraint, match=message):
        build()


# Forms.

FORMS = [
    all_different([0, 2]),
    all_different([0, 2], [[1, 2], 3]),
    all_equal([1, 0, 3]),
    permutation([0, 1, 2], [5, 4, 4]),
    digit_sum([0, 1], 7),
    digit_sum([0, 1], at_least=2, weights=[2, -1]),
    token_sum([0, 1], {3: 2, 1: -1}, at_most=4),
    exactly(1, [token(0, 1), contains("a")]),
    at_least(0, [token(0, 1)]),
    at_most(2, [~token(0, 1), all_different([0, 1]), contains("b")]),
    sudoku("." * 80 + "5"),
    sudoku([[1, 0, 0, 0], [0] * 4, [0] * 4, [None] * 4], box=2),
    sudoku("A" + "." * 255, box=4),
    sudoku("6" + "." * 35, box=(2, 3)),
    sudoku([[0] * 36] * 36, box=6),
]


@pytest.mark.parametrize("alpha", FORMS, ids=lambda c: type(c).__name__)
def test_round_trips(alpha):
    form = alpha.to_json()
    assert from_json(json.loads(json.dumps(form))) == alpha
    assert from_json((~alpha).to_json()) == ~alpha
    assert pickle.loads(pickle.dumps(alpha)) == alpha
    assert hash(from_json(form)) == hash(alpha)
    assert hasattr(locore, form["type"])
    with pytest.raises(UnsupportedKeyword):
        from_json({**form, "surplus": 1})


def test_grids_are_read_alike_however_they_are_written():
    lines = "\n".join(
        ["53..7....", "6..195...", ".98....6.", "8...6...3", "4..8.3..1", "7...2...6", ".6....28.", "...419..5", "....8..79"]
    )
    flat = lines.replace("\n", "").replace(".", "0")
    rows = [[int(c) for c in flat[9 * r : 9 * r + 9]] for r in range(9)]
    assert sudoku(lines) == sudoku(flat) == sudoku(rows) == sudoku(lines.split()) == sudoku([int(c) for c in flat])


def test_reasons():
    puzzle = sudoku("1..." + "." * 12, box=2)
    right = "".join(map(str, GRIDS[0]))
    assert right[0] == "1"
    assert locore.explain(puzzle, right, TEXT).holds
    said = {
        text: locore.explain(puzzle, text, TEXT).reason for text in (right[:5], right + "1", "2" + right[1:], "1x" + right[2:])
    }
    assert "ends after 5 of 16 cells" in said[right[:5]]
    assert "follows the last cell" in said[right + "1"]
    assert "row 1, column 1 (token 0) holds 2, given is 1" in said["2" + right[1:]]
    assert "row 1, column 2 (token 1) is no symbol" in said["1x" + right[2:]]
    assert "two 1s in row 1" in locore.explain(puzzle, "11" + right[2:], TEXT).reason
    assert "positions 0 and 2 both hold" in locore.explain(all_different([0, 1, 2]), "232", TEXT).reason
    assert "the sum is 5, exactly 6" in locore.explain(digit_sum([0, 1], 6), "23", TEXT).reason
    assert "1 of 2 hold, exactly 2" in locore.explain(exactly(2, [token(0, 2), token(1, 2)]), "23", TEXT).reason


def test_a_kept_circuit_is_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCORE_CACHE", str(tmp_path))
    monkeypatch.setattr(stored, "WORTH_SECONDS", 0.0)
    stored.forget()
    puzzle = sudoku("1..." + "." * 12, box=2)
    first = compile_and_tell(puzzle, TEXT, 16)
    stored.forget()
    second = compile_and_tell(puzzle, TEXT, 16)
    third = compile_and_tell(sudoku("2..." + "." * 12, box=2), TEXT, 16)
    stored.forget()
    assert [first.origin, second.origin, third.origin] == ["compiled", "disk", "compiled"]
    assert second.circuit.count() == first.circuit.count()
    prefix = torch.tensor([1, 2, 3, 4, 3])
    assert torch.equal(first.circuit.allowed(prefix), second.circuit.allowed(prefix))
    assert [r.tolist() for r in first.circuit.reader.rows] == [r.tolist() for r in second.circuit.reader.rows]
