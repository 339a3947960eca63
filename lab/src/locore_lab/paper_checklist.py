"""Every experiment at toy size, and each row of the paper's tables beside what was measured.

An experiment has a folder of its own, in which a killed run goes on. One that fails says so in its lines, and the others
still run. What an experiment trained at toy size is removed once its table is written: it is large, and nobody needs it again.
"""

from __future__ import annotations

import json
import shutil
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import typer

from locore.io import Journal, Record, only_writer, write_whole
from locore.kernel.errors import InvalidArgument
from locore_lab.detox.command import PAPER as DETOX
from locore_lab.detox.plan import ALONE, PAPERS, DetoxPlan
from locore_lab.detox.plan import QUICK as DETOX_QUICK
from locore_lab.harness import Output, Quick, Seed, experiment, markdown_table, say
from locore_lab.shared import RESULTS
from locore_lab.sudoku.study import COSTLY, HARD_METHODS, PUBLISHED
from locore_lab.sudoku.train import TRAINED
from locore_lab.warcraft.command import PAPER as WARCRAFT

COLUMNS = ["paper", "row there", "row here", "numbers", "there", "this run", "full size"]
NONE = "–"


@dataclass(frozen=True)
class PaperRow:
    """A row of a table of the paper."""

    where: str  # the table
    name: str  # of the row there
    here: str  # how its row here begins
    numbers: str  # which they are
    there: str  # these numbers, as printed
    begins: tuple[str, ...] = ()  # how its row here begins, where that is not the same at toy size and at full size


@dataclass(frozen=True)
class Experiment:
    """One of the paper's."""

    name: str  # of its command and of its folder
    rows: tuple[PaperRow, ...]  # of its tables
    read: Callable[[Record, PaperRow], str]  # the numbers of a row, from `results.json`
    run: Callable[[Path, int], object]  # writes `results.json` at toy size into a folder, with a seed
    committed: Path  # folder of the full-size results
    scratch: tuple[str, ...] = ()  # names of folders that hold what was trained at toy size, as patterns


@dataclass(frozen=True)
class Checklist:
    """The page, and the experiments that failed."""

    text: str
    failed: tuple[str, ...]


@experiment("locore reproduce all --quick -o results", "checklist.md")
def run(output: Output, quick: Quick = False, seed: Seed = 0) -> None:
    """Every experiment at toy size, and each row of the paper's tables beside what was measured: checklist.md."""
    if not quick:
        raise InvalidArgument("all of them run at toy size only: give --quick, or run them one by one, with their data.")
    found = run_all(output, seed)
    if found.failed:
        print(found.text)
        raise typer.Exit(1)


def run_all(output: Path, seed: int = 0, experiments: Sequence[Experiment] | None = None) -> Checklist:
    """Run every experiment at toy size, each in a folder of its own, and write `checklist.md`; a killed run goes on."""
    table: list[Record] = []
    errors: dict[str, str | None] = {}
    with only_writer(output):
        journal = Journal(output / "rows.jsonl", {"what": "all", "seed": seed})
        wanted = experiments or papers()
        for number, each in enumerate(wanted, 1):
            say(f"{number} of {len(wanted)}: {each.name}")
            errors[each.name] = error = _error(each, output / each.name, seed, journal)
            for row in each.rows:
                here, wrong = (f"failed: {error}", error) if error else _numbers(each, row, output / each.name)
                errors[each.name] = errors[each.name] or wrong
                shown = (row.where, row.name, row.here, row.numbers, row.there, here, _numbers(each, row, each.committed)[0])
                table.append(dict(zip(COLUMNS, shown, strict=True)))
        failed = tuple(name for name, error in errors.items() if error)
        seconds = ", ".join(f"{name} {record['seconds']:.0f} s" for (name,), record in journal.items())
        parts = [
            "# The paper's tables",
            "Toy size, made to see that every row runs; nothing follows from its numbers. Full size: what the repository holds "
            "in `lab/results`, on the models and data that `docs/lab/reproduce.md` names, which are not the paper's. "
            f"Wall time: {seconds}.",
            markdown_table(table, COLUMNS),
            f"Failed: {', '.join(failed)}." if failed else "Every experiment ran to its end.",
        ]
        found = Checklist("\n\n".join(parts) + "\n", failed)
        write_whole(output / "checklist.md", found.text)
    return found


def papers() -> tuple[Experiment, ...]:
    """The paper's experiments, in the order of the paper."""
    return (
        Experiment("overview", _overview_rows(), _overview, _quick("overview"), RESULTS / "overview"),
        Experiment("warcraft", _warcraft_rows(), _warcraft, _quick("warcraft"), RESULTS / "warcraft" / "edges", ("model*",)),
        Experiment("sudoku", _sudoku_rows(), _sudoku, _quick("sudoku"), RESULTS / "sudoku", ("model",)),
        Experiment("detox", _detox_rows(), _detox, _quick("detox"), RESULTS / "detox" / "tiny"),
    )


def _quick(name: str) -> Callable[[Path, int], object]:
    def run(output: Path, seed: int) -> object:
        return import_module(f"locore_lab.{name}.command").run(output, quick=True, seed=seed)

    return run


def _error(experiment: Experiment, folder: Path, seed: int, journal: Journal) -> str | None:
    """Run it, unless this folder has it; what went wrong, in a line."""
    key = (experiment.name,)
    if key not in journal:
        start = time.perf_counter()
        try:
            experiment.run(folder, seed)
        except Exception as error:  # whatever it is, the others are to run
            traceback.print_exc()
            return _in_a_line(error)
        journal.append(key, {"seconds": round(time.perf_counter() - start, 1)})
    # Only now, when no later call will train again: weights of another training would not be those of the finished rows.
    for path in (path for pattern in experiment.scratch for path in folder.glob(pattern) if path.is_dir()):
        shutil.rmtree(path)
    return None


def _in_a_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".replace("|", "/").split())


def _numbers(experiment: Experiment, row: PaperRow, folder: Path) -> tuple[str, str | None]:
    """The numbers of a row as a folder has them, and what is wrong."""
    path = folder / "results.json"
    if not path.is_file():
        return NONE, "no results"
    try:
        return experiment.read(json.loads(path.read_text(encoding="utf-8")), row), None
    except (InvalidArgument, KeyError) as error:
        return f"failed: {_in_a_line(error)}", _in_a_line(error)


def _the_row(rows: Sequence[Record], row: PaperRow) -> Record:
    """The first that begins as it should."""
    begins = row.begins or (row.here,)
    for found in rows:
        if str(found["row"]).startswith(begins):
            return found
    raise InvalidArgument(f"no row begins with {' or '.join(map(repr, begins))}.")


def _overview_rows() -> tuple[PaperRow, ...]:
    numbers = "entropy of p̃, of p; KL(p̃ ‖ p), nats"
    return (PaperRow("Section 3.1, Figure 1", "p̃_ỹ", "the longest texts", numbers, "low, –; low"),)


def _overview(results: Record, row: PaperRow) -> str:
    last = results["rows"][-1]
    return f"{last['entropy of p̃']}, {last['entropy of the model']}; {last['KL(p̃ ‖ p)']} ({last['tokens']} tokens)"


def _warcraft_rows() -> tuple[PaperRow, ...]:
    names = ("CNN-LSTM", "+ oversampling", "+ LCR (ours)")
    return tuple(
        PaperRow("Table 1", name, here, "exact, consistent %", f"{exact:.2f}, {consistent:.2f}")
        for (here, (exact, consistent)), name in zip(WARCRAFT.items(), names, strict=True)
    )


def _warcraft(results: Record, row: PaperRow) -> str:
    """Of a row that stands there with several numbers of samples the first."""
    found = _the_row(results["rows"], row)
    samples = f" ({found['samples']} samples)" if found.get("samples", 1) > 1 else ""
    return f"{found['exact %']}, {found['consistent %']}{samples}"


def _sudoku_rows() -> tuple[PaperRow, ...]:
    """Models behind an API are asked by nobody here: the small model alone stands in their rows."""
    rows = []
    for (model, method), exact in PUBLISHED.items():
        constrained = method == COSTLY
        name = f"{model} + LCR (ours)" if constrained else model
        here = COSTLY if constrained else HARD_METHODS[0]
        there = f"{exact:.2f}, {exact:.2f}"  # both columns of the paper are equal
        rows.append(PaperRow("Table 2", name, here, "exact, consistent %", there))
    return tuple(rows)


def _sudoku(results: Record, row: PaperRow) -> str:
    found = _the_row([each for each in results["rows"] if each["model"] == TRAINED], row)
    return f"{found['exact %']:.2f}, {found['consistent %']:.2f}"


def _detox_rows() -> tuple[PaperRow, ...]:
    """The paper does not print its k; here the one at which τ is chosen, with that τ, whose row is the first of this k."""
    published = f"{PAPERS} as published"
    begins = tuple(f"{published}, k={plan.k}," for plan in (DETOX_QUICK, DetoxPlan()))
    rows = []
    for here, (name, *numbers) in zip((ALONE, "word banning", published), DETOX, strict=True):
        there = _toxicity(numbers[:3], numbers[3:6], numbers[6])
        which = "EMT full, toxic, non-toxic; TP % the same; perplexity"
        rows.append(PaperRow("Table 3", name, here, which, there, begins if here == published else ()))
    return tuple(rows)


def _detox(results: Record, row: PaperRow) -> str:
    title, table = next((title, table) for title, table in results["tables"].items() if title.startswith("Every row"))
    g, found = title.rsplit(" ", 1)[1], _the_row(table, row)
    parts = ("full", "toxic", "non-toxic")
    emt = [found[f"EMT@{g} {part}, numbers"]["value"] for part in parts]
    tp = [100 * found[f"TP@{g} % {part}, numbers"]["value"] for part in parts]
    return _toxicity(emt, tp, found["perplexity of all tokens, numbers"]["value"])


def _toxicity(emt: Sequence[float], tp: Sequence[float], perplexity: float) -> str:
    parts = (", ".join(f"{value:.2f}" for value in values) for values in (emt, tp, [perplexity]))
    return "; ".join(parts)
