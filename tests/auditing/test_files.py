"""`locore audit` on files: rows that outlive a kill, resumes, exit codes, and the page."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import locore
from locore.auditing.page import page
from locore.auditing.prompt_audit import TEACHERS, AuditRow, Question
from locore.auditing.result import Audit
from locore.batch.audits import read_audit
from locore.batch.batch_settings import Settings
from locore.batch.plan import Plan
from locore.batch.worker import Worker
from locore.cli import main
from tests.forked import forked

NUMBER = 8
PROMPTS = [{"prompt": f"Number {number} is"} for number in range(NUMBER)]


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    """Options of an audit of a few prompts."""
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PROMPTS))
    (tmp_path / "b.txt").write_text(" was\n dragon\n")
    files = ["--prompts", str(tmp_path / "p.jsonl"), "--ban-list", str(tmp_path / "b.txt")]
    return ["audit", *files, "--max-tokens", "5", "--budget", "100"]


@pytest.fixture
def few(asked: list[str], tmp_path: Path) -> list[str]:
    """The same of two prompts."""
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PROMPTS[:2]))
    return asked


def rows_of(folder: Path) -> list[AuditRow]:
    return [AuditRow.from_json(row.to_json(), seconds=0.0) for row in read_audit(folder).rows]


def test_a_killed_audit_goes_on_and_nothing_is_lost_or_counted_twice(asked: list[str], tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert main([*asked, "--out", str(whole)]) == 0
    process = forked(lambda: main([*asked, "--out", str(broken)]))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and sum(part.read_bytes().count(b"\n") for part in broken.glob("parts/*")) < 3:
        time.sleep(0.002)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert main([*asked, "--out", str(broken), "--resume"]) == 0
    assert rows_of(broken) == rows_of(whole) and len(rows_of(whole)) == NUMBER


def test_what_is_finished_is_not_asked_again_but_for_rows_that_teach(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, ask, times = tmp_path / "out", Question.ask, []

    def counted(self, *arguments, **options):  # type: ignore[no-untyped-def]
        times.append(1)
        if len(times) == 5:
            raise KeyboardInterrupt
        return ask(self, *arguments, **options)

    monkeypatch.setattr(Question, "ask", counted)
    assert main([*asked, "--out", str(out)]) == 130
    assert main([*asked, "--out", str(out), "--resume"]) == 0
    assert len(times) == 1 + NUMBER + TEACHERS


@pytest.mark.parametrize("more", [["--temperature", "0.5"], ["--limit", "1e-3"], ["--max-tokens", "6"], ["--seed", "9"]])
def test_other_settings_do_not_go_on(
    few: list[str], more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "out")]
    assert main([*few, *out]) == 0
    capsys.readouterr()
    assert main([*few, *out, *more, "--resume"]) == 2
    said = capsys.readouterr().err
    assert "other settings" in said and len(said.splitlines()) == 1
    assert main([*few, *out]) == 2


def test_exit_codes_say_which_side(few: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*few, "--limit", "1e-9"]) == 1
    (tmp_path / "b.txt").write_text(" supercalifragilistic\n")
    assert main([*few, "--limit", "1e-9", "--max-tokens", "2", "--json", str(tmp_path / "a.json")]) == 0
    assert json.loads((tmp_path / "a.json").read_text())["settled"] == "below"
    (tmp_path / "p.jsonl").write_text('{"prompt": "one"}\nno json\n{"prompt": "a", "constraint": {"type": "true"}}\n')
    capsys.readouterr()
    assert main(few) == 3
    assert capsys.readouterr().out.count("error: ") == 2


def test_one_audit_against_another(few: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main([*few, "--out", out]) == 0
    assert main([*few, "--against", out]) == 0
    assert "mean × 1, 95 %" in capsys.readouterr().out
    (tmp_path / "b.txt").write_text(" dragon\n")
    assert main([*few, "--against", out]) == 2


@pytest.mark.parametrize(
    ("more", "said"), [(["--resume"], "--out"), (["--against", "nowhere"], "holds no audit"), (["--max-tokens", "0"], "from 1")]
)
def test_what_makes_no_sense_is_said(asked: list[str], more: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked, *more]) == 2
    assert said in capsys.readouterr().err


def test_no_phrases_are_refused(asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.txt").write_text("\n\n")
    assert main(asked) == 2
    assert "phrase" in capsys.readouterr().err


ROWS = [
    AuditRow(0, 0.2, (0.1, 0.4), (0.0, 1.0), "trust", "above", 9, ("<b>x</b>",), "", {"<i>": 0.2}, (0.0, 0.2), 0.1, 2, "a & b"),
    AuditRow(1, None, (0.0, 1e-5), (0.0, 1e-5), "not seen", "below"),
    AuditRow(2, 0.0, (0.0, 0.0), (0.0, 0.0), "impossible", "below"),
    AuditRow(3, None, (0.0, 1.0), (0.0, 1.0), "error", "not settled", note="too <long>"),
]


class Tags(HTMLParser):
    """Tags that are opened and not closed, and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Nothing is left open."""


@pytest.mark.parametrize("rows", [ROWS, ROWS[1:], ROWS[3:], ROWS[:1] * 300])
def test_the_page_stands_alone(rows: list[AuditRow]) -> None:
    found = Audit.of(rows, 0.01, {})
    written = page(found, "An <audit>", found.compare(found))
    tags = Tags()
    tags.feed(written)
    assert not tags.open and not tags.addresses and "<b>x" not in written and "<i>" not in written and "<long>" not in written
    pictures = re.findall(r"<svg.*?</svg>", written, re.S)
    assert len(pictures) == (3 if rows[0].by_phrase else 1)
    for picture in pictures:
        ElementTree.fromstring(picture)
    assert ("100 more prompts" in written) == (len(rows) > 200)


def test_the_shell_writes_the_page(few: list[str], tmp_path: Path) -> None:
    assert main([*few, "--html", str(tmp_path / "a.html")]) == 0
    assert (tmp_path / "a.html").read_text().count("<svg") == 3
    assert locore.Audit is Audit


def test_a_row_at_which_workers_die_is_given_up_and_teaches_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the shard would never end: what a killed worker had done of it is learned once more by the next."""
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PROMPTS))
    for name in ("parts", "results"):
        (tmp_path / name).mkdir()
    event = (~locore.ban([" was"])).to_json()
    audit = {"phrases": [" was"], "limit": None, "show_texts": False}
    worker = Worker(Settings(constraint=event, max_new_tokens=4, budget=60, audit=audit))
    asked, compute, fatal = list[int](), worker.row, [2, 2, 2, 6]

    def row(number: int, line: bytes, *more: Any, **options: Any) -> Any:
        asked.append(number)
        if number in fatal:
            fatal.remove(number)
            raise KeyboardInterrupt
        return compute(number, line, *more, **options)

    monkeypatch.setattr(worker, "row", row)
    plan = Plan(tmp_path / "p.jsonl", 100)
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            worker.shard(plan.path, tmp_path, plan[0], "run")
    worker.shard(plan.path, tmp_path, plan[0], "run")
    assert asked == [1, 2, 1, 2, 1, 2, 1, 3, 4, 5, 6, 1, 3, 4, 6, 7, 8]
    rows = [json.loads(line) for line in (tmp_path / "results" / "000000.jsonl").read_text().splitlines()]
    assert [row["line"] for row in rows] == list(range(1, NUMBER + 1))
    assert [row["line"] for row in rows if "error" in row] == [2]
