"""What a run does: which puzzles, how many, and what each method may spend."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from locore.kernel.errors import InvalidArgument
from locore_lab.sudoku.dataset import (
    FEATURES,
    SIZES,
    csv_files,
    generated_split,
    load_csv,
    load_satnet,
    sample,
    several_solutions,
)
from locore_lab.sudoku.puzzles import Puzzle

DATA_SEED = 0  # of the generated puzzles; the trained model has seen those of this seed's training part
WHOLE = ("hardest11", "top95", "hard375", "easy50", "satnet_example")  # sets that are small enough to be read whole
SAMPLED = ("clue17", "mixed10k")
PAPER_SETS, SEVERAL = "sudoku10", "multi"
Sets = dict[str, list[Puzzle]]


@dataclass(frozen=True)
class SudokuPlan:
    """How large a run is.

    Attributes:
        box: 3 for 9 × 9.
        blanks: open cells of the generated test puzzles.
        sizes: of the generated sets; without one to train on where the model is trained already.
        puzzles: of each set, at most.
        costly: puzzles of a set, at most, for the paper's sampler, which costs hundreds of times as much as the others, and
            for models other than the small one that is trained for the task.
        samples: draws of "best of S samples".
        sampled: puzzles of each large set of hard ones.
        several: puzzles with several solutions.
    """

    box: int = 3
    blanks: int = 10
    sizes: tuple[tuple[str, int], ...] = (("test", SIZES["test"]),)
    puzzles: int = 1000
    costly: int = 100
    samples: int = 8
    sampled: int = 300
    several: int = 300


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
    """All puzzles of a run.

    Attributes:
        split: the generated ones.
        test: sets of the paper's setting, by name.
        hard: sets of hard puzzles with one solution each.
        several: puzzles with several solutions.
        missing: what the data folder does not have, in words.
    """

    split: Mapping[str, list[Puzzle]]
    test: Sets
    hard: Sets
    several: Sets
    missing: tuple[str, ...] = ()

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
        raise InvalidArgument(f"{data} holds none of the files that docs/reproduce.md names.")
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
