"""`pytest --cpu-times FILE`: the CPU seconds of every test, with the processes it waited for, and of reading the tests.

What a fixture of a session or a module costs is counted where it is made, and a server's work where it is ended.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SHOWN = 30


def spent() -> float:
    """CPU seconds of this process, and of those that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Times:
    """Writes into each report what was spent since the one before it, and adds them up where reports come together."""

    def __init__(self, config: pytest.Config) -> None:
        self.last = 0.0
        self.tests: Counter[str] = Counter()
        self.collected: Counter[str] = Counter()
        self.is_worker = hasattr(config, "workerinput")
        self.path = Path(config.getoption("--cpu-times"))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.last = spent()
        self.collected["here"] = self.last

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report: Any = yield
        report.cpu, self.last = spent() - self.last, spent()
        report.collected = [os.environ.get("PYTEST_XDIST_WORKER", "here"), self.collected["here"]]
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        if not self.is_worker and hasattr(report, "cpu"):  # that of a worker that died has none
            self.tests[report.nodeid] += report.cpu
            worker, seconds = report.collected
            self.collected[worker] = seconds

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        files: Counter[str] = Counter()
        for name, seconds in self.tests.items():
            files[name.partition("::")[0]] += seconds
        total, before = sum(files.values()), sum(self.collected.values())
        terminalreporter.section(f"CPU seconds: {total:.0f} of tests, {before:.0f} of reading them")
        for found in (files, self.tests):
            for name, seconds in found.most_common(SHOWN):
                terminalreporter.line(f"{seconds:8.1f}  {name}")
            terminalreporter.line("")
        self.path.write_text("".join(f"{seconds:.3f} {name}\n" for name, seconds in self.tests.most_common()), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-times", metavar="FILE", help="print the CPU seconds of the dearest tests and files, and write those of all tests"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cpu-times"):
        config.pluginmanager.register(Times(config), "cpu-times")
