"""Where puzzles come from: the generator, CSV files, and the tensors of SATNet; and which of them a run asks."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from locore.kernel.errors import InvalidArgument
from locore_lab.shared import lines_of, reading
from locore_lab.sudoku.puzzles import (
    OPEN,
    Puzzle,
    count_solutions,
    generate_puzzles,
    is_solved,
    keeps_givens,
    opened,
    pattern,
    random_grid,
)

BLANKS = 10  # open cells of a puzzle, in the paper
SIZES = {"test": 1000, "validation": 200, "train": 9000}
FEATURES, LABELS = "features.pt", "labels.pt"
TEST_SHARE = 10  # the last tenth of SATNet's 10,000 boards is for tests


def generated_split(seed: int, sizes: Mapping[str, int] = SIZES, blanks: int = BLANKS, box: int = 3) -> dict[str, list[Puzzle]]:
    """Test, validation and training puzzles; no two share a grid, not even a renamed or turned one.

    4 × 4 has too few grids for that; there training puzzles may have grids of test puzzles.
    """
    distinct = box > 2
    used: set[str] = set()
    split = {}
    for number, (part, size) in enumerate(sizes.items()):
        rng = np.random.default_rng([seed, number, blanks, box])
        split[part] = generate_puzzles(size, blanks, rng, box, frozenset(used), distinct)
        used |= {pattern(puzzle.solution) for puzzle in split[part]} if distinct else set()
    return split


def load_csv(path: Path) -> list[Puzzle]:
    """Puzzles of a CSV file with the columns `puzzle`, `solution` and perhaps `n_solutions`; `.xz` is unpacked.

    Every puzzle is checked: its shape, its givens, and that its solution is one.
    """
    puzzles = []
    with reading(path):
        for number, row in enumerate(csv.DictReader(lines_of(path), strict=True), 2):
            with reading(f"line {number}"):
                count = int(row["n_solutions"]) if row.get("n_solutions") else None
                puzzles.append(checked(Puzzle(row["puzzle"].strip().replace("0", OPEN), row["solution"].strip(), count)))
        if not puzzles:
            raise InvalidArgument("it holds no puzzle.")
    return puzzles


def checked(puzzle: Puzzle) -> Puzzle:
    """The puzzle itself if it is one, and its solution is one of it."""
    solved = is_solved(puzzle.solution, puzzle.box) and keeps_givens(puzzle.solution, puzzle.givens)
    if not solved or puzzle.solutions == 0:
        raise InvalidArgument(f"{puzzle.givens!r} is no puzzle of which {puzzle.solution!r} is a solution.")
    return puzzle


def load_satnet(folder: Path, part: str = "test", blanks: int | None = BLANKS, seed: int = 0) -> list[Puzzle]:
    """Puzzles of Wang et al. (2019): `features.pt` and `labels.pt`, one-hot tensors [boards, 9, 9, 9].

    Boards are split as there: the first nine tenths for training, the last tenth for tests.

    Args:
        folder: of the two files.
        part: "train" or "test".
        blanks: open so many random cells of each label, as the paper says of its puzzles; None for the givens of `features.pt`,
            which leave far more cells open.
        seed: of the cells that are opened. These puzzles may have several solutions, and are not chosen.
    """
    puzzles = []
    with reading(folder):
        features, labels = _one_hot(folder / FEATURES), _one_hot(folder / LABELS)
        first_test = len(labels) - max(1, len(labels) // TEST_SHARE)
        for board in {"test": range(first_test, len(labels)), "train": range(first_test)}[part]:
            with reading(f"board {board}"):
                puzzle = checked(Puzzle(_cells(features[board]), _cells(labels[board])))
            puzzles.append(puzzle if blanks is None else opened(puzzle.solution, blanks, np.random.default_rng([seed, board])))
    return puzzles


def _one_hot(path: Path) -> Tensor:
    """Long[boards, side, side], the digits; 0 where no entry is set."""
    tensor: Tensor = torch.load(path, map_location="cpu", weights_only=True)
    bits = bool(((tensor == 0) | (tensor == 1)).all() & (tensor.sum(-1) <= 1).all())
    if tensor.shape[1:] not in ((9, 9, 9), (4, 4, 4)) or not bits:
        raise InvalidArgument(f"{path.name} is no tensor [boards, 9, 9, 9] (or 4, 4, 4), one-hot in the last axis.")
    return (tensor.long() * torch.arange(1, tensor.shape[-1] + 1)).sum(-1)


def _cells(board: Tensor) -> str:
    return "".join(str(digit) if digit else OPEN for digit in board.flatten().tolist())


def several_solutions(num: int, blanks: int, seed: int, box: int, at_most: int) -> list[Puzzle]:
    """Puzzles with 2 to `at_most` solutions and so many open cells."""
    rng = np.random.default_rng([seed, blanks, box, 1])
    found: list[Puzzle] = []
    while len(found) < num:
        puzzle = opened(random_grid(rng, box), blanks, rng)
        count = count_solutions(puzzle.givens, at_most + 1)
        if 2 <= count <= at_most:
            found.append(Puzzle(puzzle.givens, puzzle.solution, count))
    return found


def sample(puzzles: Sequence[Puzzle], num: int, seed: int) -> list[Puzzle]:
    """At most so many, drawn without replacement, in their order."""
    chosen = np.random.default_rng(seed).permutation(len(puzzles))[:num]
    return [puzzles[i] for i in sorted(chosen.tolist())]


def csv_files(folder: Path, name: str) -> Iterator[Path]:
    """The files of a folder whose names begin so and end with `.csv` or `.csv.xz`."""
    for path in sorted(folder.glob(f"{name}*")):
        if path.name.endswith((".csv", ".csv.xz")):
            yield path


DATA_SEED = 0  # of the generated puzzles; the trained model has seen those of this seed's training part
WHOLE = ("hardest11", "top95", "hard375", "easy50", "satnet_example")  # sets that are small enough to be read whole
SAMPLED = ("clue17", "mixed10k")
PAPER_SETS, SEVERAL = "sudoku10", "multi"
Sets = dict[str, list[Puzzle]]


@dataclass(frozen=True)
class SudokuPlan:
    """How large a run is."""

    box: int = 3  # 3 for 9 × 9
    blanks: int = 10  # open cells of the generated test puzzles
    # of the generated sets; without one to train on where the model is trained already
    sizes: tuple[tuple[str, int], ...] = (("test", SIZES["test"]),)
    puzzles: int = 1000  # of each set, at most
    # puzzles of a set, at most, for the paper's sampler, which costs hundreds of times as much as the others, and for models
    # other than the small one that is trained for the task
    costly: int = 100
    samples: int = 8  # draws of "best of S samples"
    sampled: int = 300  # puzzles of each large set of hard ones
    several: int = 300  # puzzles with several solutions


QUICK = SudokuPlan(
    box=2,
    blanks=6,
    sizes=(("test", 24), ("validation", 50), ("train", 2000)),
    puzzles=24,
    costly=6,
    samples=4,
    sampled=12,
    several=12,
)


@dataclass(frozen=True)
class Puzzles:
    """All puzzles of a run."""

    split: Mapping[str, list[Puzzle]]  # the generated ones
    test: Sets  # sets of the paper's setting, by name
    hard: Sets  # sets of hard puzzles with one solution each
    several: Sets  # puzzles with several solutions
    missing: tuple[str, ...] = ()  # what the data folder does not have, in words

    def digest(self) -> str:
        """Of all that is asked."""
        asked = [
            (name, p.givens, p.solution) for sets in (self.test, self.hard, self.several) for name in sets for p in sets[name]
        ]
        return hashlib.sha256(repr(asked).encode()).hexdigest()[:16]


def gather(plan: SudokuPlan, data: Path | None) -> Puzzles:
    """Generate puzzles, and read those of a folder.

    Without a folder, and in small grids, hard puzzles and those with several solutions are generated too: puzzles with more
    open cells.
    """
    split = generated_split(DATA_SEED, dict(plan.sizes), plan.blanks, plan.box)
    test = {"generated": split["test"][: plan.puzzles]}
    if data is None:
        more = plan.box**4 * 9 // 16  # 45 open cells of 81
        hard = {f"generated, {more} open": generated_split(DATA_SEED, {"hard": plan.sampled}, more, plan.box)["hard"]}
        several = several_solutions(plan.several, more, DATA_SEED, plan.box, 1000)
        return Puzzles(split, test, hard, {f"generated, {more} open": several})
    if not data.is_dir():
        raise InvalidArgument(f"{data} is no folder.")
    read: Sets = {}
    for name in (PAPER_SETS, *WHOLE, *SAMPLED, SEVERAL):
        for path in csv_files(data, name):
            read[path.name.split(".")[0]] = load_csv(path)
    read |= _satnet(data)
    for name, puzzles in read.items():
        wrong = next((p for p in puzzles if p.box != plan.box), None)
        if wrong:
            raise InvalidArgument(f"{data}, {name}: a grid of {len(wrong.givens)} cells; this run has {plan.box**4}.")
    if not read:
        raise InvalidArgument(f"{data} holds none of the files that docs/lab/reproduce.md names.")
    test |= {name: sample(found, plan.puzzles, 0) for name, found in read.items() if name.startswith((PAPER_SETS, "satnet,"))}
    hard = {name: sample(read[name], plan.puzzles, 0) for name in WHOLE if name in read}
    hard |= {name: sample(read[name], min(plan.sampled, plan.puzzles), 0) for name in SAMPLED if name in read}
    several_sets = {
        name: sample(found, min(plan.several, plan.puzzles), 0) for name, found in read.items() if name.startswith(SEVERAL)
    }
    missing = tuple(name for name in (*WHOLE, *SAMPLED) if name not in read)
    missing += () if several_sets else (f"{SEVERAL}*",)
    missing += () if any(name.startswith("satnet,") for name in read) else (FEATURES,)
    return Puzzles(split, test, hard, several_sets, missing)


def _satnet(data: Path) -> Sets:
    """SATNet's test boards, with 10 cells of each label opened and with the givens of the files."""
    if not (data / FEATURES).exists():
        return {}
    return {"satnet, 10 open": load_satnet(data), "satnet, as it is": load_satnet(data, blanks=None)}
