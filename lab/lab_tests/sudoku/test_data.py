"""Sudoku puzzles, the files they are read from, and the texts around them."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from locore_lab.shared import SHARED
from locore_lab.sudoku.dataset import SudokuPlan, gather, generated_split, load_csv, load_satnet
from locore_lab.sudoku.methods import SavedAnswers, cells_right, grid_in, is_consistent
from locore_lab.sudoku.puzzles import (
    Puzzle,
    contradiction,
    count_solutions,
    generate_puzzles,
    is_solved,
    opened,
    pattern,
    random_grid,
    relabelled,
    solutions,
    turned,
)

import locore
from locore.kernel.errors import InvalidArgument

DATA = SHARED / "data" / "sudoku"
SMALL = "1234341221434321"


# Puzzles


@given(st.integers(0, 2**32), st.sampled_from([2, 3]), st.integers(1, 12))
def test_plain_solver_and_circuits_agree(seed, box, blanks):
    rng = np.random.default_rng(seed)
    puzzle = opened(random_grid(rng, box), blanks if box == 2 else 3 * blanks, rng)
    found = set(solutions(puzzle.givens))
    assert puzzle.solution in found
    assert all(is_consistent(grid, puzzle) for grid in found)
    assert locore.compile(locore.sudoku(puzzle.givens, box), box * box, box**4).count() == len(found)


def test_empty_small_grid_has_288_solutions():
    assert len(set(solutions("." * 16))) == 288


def test_generated_puzzles_have_one_solution_and_grids_of_their_own():
    split = generated_split(3, {"test": 20, "train": 40})
    every = split["test"] + split["train"]
    assert all(p.open == 10 and len(list(solutions(p.givens))) == 1 for p in every)
    assert len({pattern(p.solution) for p in every}) == 60


def test_generated_puzzles_are_not_among_the_given_ones():
    if not DATA.is_dir():
        pytest.skip("the puzzle collections are not here")
    known = {pattern(p.solution) for p in load_csv(DATA / "sudoku10_dev.csv")}
    split = generated_split(0, {"test": 300})
    assert not known & {pattern(p.solution) for p in split["test"]}


@given(st.integers(0, 2**32), st.integers(0, 7), st.permutations("123456789"))
def test_pattern_ignores_names_and_turns_and_nothing_else(seed, symmetry, digits):
    grid = random_grid(np.random.default_rng(seed))
    other = relabelled(turned(grid, symmetry), "".join(digits))
    assert is_solved(other, 3)
    assert pattern(other) == pattern(grid)
    assert pattern(random_grid(np.random.default_rng(seed + 1))) != pattern(grid)


def test_impossible_puzzles_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidArgument, match="17 open"):
        generate_puzzles(1, 17, rng, box=2)
    assert contradiction("11" + "." * 14, 2) == "two 1s in row 1"
    assert count_solutions("11" + "." * 14, 5) == 0


# Files


def write_csv(path: Path, *rows: str, header: str = "puzzle,solution,n_solutions") -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_csv_is_read_plain_and_packed(tmp_path):
    givens = "." + SMALL[1:]
    path = write_csv(tmp_path / "a.csv", f"{givens},{SMALL},1", f"0{SMALL[1:]},{SMALL},")
    packed = tmp_path / "a.csv.xz"
    packed.write_bytes(lzma.compress(path.read_bytes()))
    assert load_csv(path) == load_csv(packed) == [Puzzle(givens, SMALL, 1), Puzzle(givens, SMALL)]


@pytest.mark.parametrize(
    "row",
    [
        f"12,{SMALL},1",
        f"x{SMALL[1:]},{SMALL},1",
        f"5{SMALL[1:]},{SMALL},1",
        f"11{'.' * 14},{SMALL},1",
        f"{'.' * 16},{SMALL[:-1]}2,1",
        f"2{'.' * 15},{SMALL},1",
        f"{'.' * 16},{SMALL},0",
        f"{'.' * 16},{SMALL},many",
        f"{'.' * 16}",
    ],
)
def test_wrong_lines_of_a_csv_are_named(tmp_path, row):
    with pytest.raises(InvalidArgument, match=r"a\.csv.*line 2"):
        load_csv(write_csv(tmp_path / "a.csv", row))


def test_unreadable_csv(tmp_path):
    (tmp_path / "a.csv.xz").write_bytes(b"not packed")
    cut = lzma.compress(f"puzzle,solution\n{SMALL},{SMALL}\n".encode() * 1000)
    (tmp_path / "b.csv.xz").write_bytes(cut[: len(cut) // 2])
    write_csv(tmp_path / "c.csv", f"{SMALL},{SMALL}", header="quiz,solution")
    write_csv(tmp_path / "d.csv")
    for name in ("a.csv.xz", "b.csv.xz", "c.csv", "d.csv", "none.csv"):
        with pytest.raises(InvalidArgument, match=name):
            load_csv(tmp_path / name)


def one_hot(texts: list[str], box: int = 3) -> torch.Tensor:
    """Float[boards, side, side, side], as SATNet's files; open cells are all zero."""
    side = box * box
    result = torch.zeros(len(texts), side, side, side)
    for board, text in enumerate(texts):
        for cell, digit in enumerate(text):
            if digit != ".":
                result[board, cell // side, cell % side, int(digit) - 1] = 1.0
    return result


def satnet(folder: Path, num: int = 20) -> list[Puzzle]:
    """Files in the original format, and what they hold."""
    rng = np.random.default_rng(0)
    puzzles = [opened(random_grid(rng), 47, rng) for _ in range(num)]
    torch.save(one_hot([p.givens for p in puzzles]), folder / "features.pt")
    torch.save(one_hot([p.solution for p in puzzles]), folder / "labels.pt")
    return puzzles


def test_satnet_files_are_read(tmp_path):
    puzzles = satnet(tmp_path)
    assert load_satnet(tmp_path, "test", blanks=None) == puzzles[18:]
    assert load_satnet(tmp_path, "train", blanks=None) == puzzles[:18]
    ten = load_satnet(tmp_path, "train")
    assert [p.solution for p in ten] == [p.solution for p in puzzles[:18]]
    assert all(p.open == 10 for p in ten)
    assert load_satnet(tmp_path, "train") == ten


def test_printed_example_of_satnet_survives_its_format(tmp_path):
    if not DATA.is_dir():
        pytest.skip("the puzzle collections are not here")
    (example,) = load_csv(DATA / "satnet_example.csv")
    assert example.open == 47
    torch.save(one_hot([example.givens]), tmp_path / "features.pt")
    torch.save(one_hot([example.solution]), tmp_path / "labels.pt")
    assert load_satnet(tmp_path, blanks=None) == [replace(example, solutions=None)]


def test_wrong_satnet_files(tmp_path):
    with pytest.raises(InvalidArgument, match=r"features\.pt"):
        load_satnet(tmp_path)
    satnet(tmp_path)
    labels = torch.load(tmp_path / "labels.pt", weights_only=True)
    for wrong in (labels[:, 0], labels * 2, torch.ones_like(labels), torch.zeros_like(labels), {"labels": labels}):
        torch.save(wrong, tmp_path / "labels.pt")
        with pytest.raises(InvalidArgument, match=str(tmp_path)):
            load_satnet(tmp_path)
    (tmp_path / "labels.pt").write_bytes(b"garbage")
    with pytest.raises(InvalidArgument, match=str(tmp_path)):
        load_satnet(tmp_path)


def test_folder_of_other_grids_is_refused(tmp_path):
    plan = SudokuPlan(sizes=(("test", 2), ("validation", 3), ("train", 10)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgument, match="none of the files"):
        gather(plan, tmp_path / "empty")
    write_csv(tmp_path / "hardest11.csv", f".{SMALL[1:]},{SMALL},1")
    with pytest.raises(InvalidArgument, match="16 cells; this run has 81"):
        gather(plan, tmp_path)


# Texts


@pytest.mark.parametrize(
    "answer",
    [
        SMALL,
        f'"{SMALL}"',
        f"Here is the solution of the 4x4 puzzle:\n\n{SMALL}\n\nHope this helps! 1234",
        "```\n1 2 | 3 4\n3 4 | 1 2\n----+----\n2 1 | 4 3\n4 3 | 2 1\n```",
        "[[1, 2, 3, 4],\n [3, 4, 1, 2],\n [2, 1, 4, 3],\n [4, 3, 2, 1]]",
        "[[1,2,3,4],[3,4,1,2],[2,1,4,3],[4,3,2,1]]",
        "The puzzle:\n1..4\n3412\n2143\n4321\nThe solution:\n1234\n3412\n2143\n4321",
        "1..4\n3412\n2143\n4321\n1234\n3412\n2143\n4321",
        "1111111111111111\nNo, better:\n1234341221434321",
        "| 1 | 2 | 3 | 4 |\n|---|---|---|---|\n| 3 | 4 | 1 | 2 |\n| 2 | 1 | 4 | 3 |\n| 4 | 3 | 2 | 1 |",
    ],
)
def test_extraneous_text_is_removed(answer):
    assert grid_in(answer, 2) == SMALL


@pytest.mark.parametrize("answer", ["", "I cannot solve this.", SMALL[:-1], SMALL + "1", "5" * 16, "1234\n3412\n2143", "12 34"])
def test_what_is_no_grid_is_no_answer(answer):
    assert grid_in(answer, 2) is None


@given(st.text(alphabet="1234 \n|-abc.", max_size=60))
def test_any_text_can_be_read(text):
    grid = grid_in(text, 2)
    assert grid is None or (len(grid) == 16 and set(grid) <= set("1234"))


def test_share_of_open_cells():
    assert cells_right(SMALL, ".." + SMALL[2:], "21" + SMALL[2:]) == 0
    assert cells_right(SMALL, ".." + SMALL[2:], "14" + SMALL[2:]) == 0.5
    assert cells_right(None, "." * 16, SMALL) == 0


def test_saved_answers(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps({"puzzle": "0" + SMALL[1:], "answer": "Sure: 1"}) + "\n")
    answers = SavedAnswers("some model", path)
    assert answers.answer("." + SMALL[1:]) == "Sure: 1"
    with pytest.raises(InvalidArgument, match="no answer for the puzzle"):
        answers.answer("." * 16)
    for line in ("{", "[]", '{"puzzle": "1"}', '{"puzzle": "1", "answer": 2}'):
        path.write_text(line + "\n")
        with pytest.raises(InvalidArgument, match=r"answers\.jsonl.*line 1"):
            SavedAnswers("some model", path)
    path.write_text(2 * (json.dumps({"puzzle": SMALL, "answer": ""}) + "\n"))
    with pytest.raises(InvalidArgument, match=r"line 2.*already"):
        SavedAnswers("some model", path)
    with pytest.raises(InvalidArgument, match=r"none\.jsonl"):
        SavedAnswers("some model", tmp_path / "none.jsonl")
