"""`locore bench people`: its wishes can be kept, its sheet tells nothing, and its table is what the grades say."""

from __future__ import annotations

import json
import random

import pytest
from locore_lab.people import command, sheet
from locore_lab.people.command import run
from locore_lab.people.wishes import WISHES
from locore_lab.people.written import TOOLS

import locore
from locore.kernel.errors import InvalidArgument

ORDER = '{"customer": "Maria Lopez", "product": "chairs", "quantity": 24, "delivery_date": "12 March", "urgent": true}'
KEPT = {  # a text that a person would keep
    "extraction": ORDER,
    "tweet": "Fresh croissants and espresso, from eight o'clock!",
    "slogan": "Sunrise: bread that wakes you up",
    "ban list": "Umbrellas everywhere, and puddles. The Thames is high.",
    "story": "Mia found a dragon in the shed. It was hungry. She gave it her soup.",
    "label": "negative",
    "date": "1969-07-20",
    "citations": "The Elbe is 1,094 km long [1].",
    "title": "How I learned to swim at forty",
    "haiku line": "Red leaves drift slowly down",
    "JSON record": '{"name": "Ann Lee", "age": 31, "city": "Oslo"}',
    "phone number": "+44 20 7946 0018",
    "product text": "This waterproof watch runs for 30 days.",
    "forbidden words": "Blue light bounces around in the air more than red light.",
    "last word": "The old man rowed out onto the ocean.",
    "infilling": " He found a hungry cat under the table. So he took the cat back to bed.",
    "list of three": "- water\n- a map\n- a warm coat",
    "yes or no, and why": "Yes, because it grows from a flower and has seeds.",
    "SQL": "SELECT name FROM users WHERE city = 'Paris';",
    "poem line": "When the moon pours silver on the hill",
}


@pytest.fixture(scope="module")
def tiny():
    return locore.load("tiny")


def _folder(path, seed, tools=TOOLS, seeds=(1, 2)):
    """Answers to all wishes, and grades, drawn by the seed."""
    draw = random.Random(seed)
    rows = [
        {"wish": wish.name, "seed": each, "tool": tool, "text": f"text {draw.random()}", "kept": draw.random() < 0.8}
        | {"cpu_seconds": draw.uniform(1, 9), "nats": draw.random(), "repeated": draw.random()}
        for wish in WISHES
        for each in seeds
        for tool in tools
    ]
    path.mkdir(exist_ok=True)
    (path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def _grade(path, seed, letters):
    draw = random.Random(seed)
    grades = {number: {letter: [draw.randint(1, 5), ""] for letter in letters} for number in _key(path)}
    (path / "grades.json").write_text(json.dumps(grades))
    return grades


def _key(path):
    return json.loads((path / "key.json").read_text())


def test_each_wish_is_kept_by_a_good_text_and_none_by_nonsense(tiny):
    assert set(KEPT) == {wish.name for wish in WISHES} and len(WISHES) == 20
    for wish in WISHES:
        assert locore.holds(wish.constraint, KEPT[wish.name], tiny), wish.name
        assert wish.name in ("ban list", "forbidden words") or not locore.holds(wish.constraint, "xyz", tiny), wish.name
        assert locore.from_json(wish.constraint.to_json()) == wish.constraint
    assert set(command.OPEN) <= set(KEPT)


@pytest.mark.parametrize("seed", range(5))
def test_the_sheet_has_every_text_once_and_no_name(tmp_path, seed):
    rows = _folder(tmp_path, seed)
    run("sheet", tmp_path)
    told = (tmp_path / "sheet.md").read_text()
    assert all(told.count(row["text"]) == 1 for row in rows)
    assert not any(tool.lower() in told.lower() for tool in TOOLS)
    orders = {tuple(each[letter] for letter in "ABC") for each in _key(tmp_path).values()}
    assert all(sorted(order) == sorted(TOOLS) for order in orders) and len(orders) == 6


@pytest.mark.parametrize("seed", range(5))
def test_the_table_counts_what_the_grades_say(tmp_path, seed):
    rows = _folder(tmp_path, seed)
    run("sheet", tmp_path)
    grades, key, wins = _grade(tmp_path, seed, "ABC"), _key(tmp_path), 0
    for wish in WISHES:
        totals = dict.fromkeys(TOOLS, 0)
        for number, each in key.items():
            for letter in "ABC" if each["wish"] == wish.name else "":
                totals[each[letter]] += grades[number][letter][0]
        wins += totals["Locore"] == max(totals.values())
    run("table", tmp_path)
    table = (tmp_path / "table.md").read_text()
    assert f"preferred or equal in {wins} of 20 wishes" in table and table.count("\n| ") == 20
    kept = sum(row["kept"] for row in rows if row["tool"] == "masking" and row["wish"] == "tweet")
    assert f"| {kept} of 2 |" in next(line for line in table.splitlines() if line.startswith("| tweet |"))


def test_temperatures_are_graded_by_their_first_texts(tmp_path):
    _folder(tmp_path / "temperatures", 0, command.NAMES, (0, 1, 2))
    run("sheet", tmp_path, heat=True)
    _grade(tmp_path / "temperatures", 0, "ABCD")
    assert len(_key(tmp_path / "temperatures")) == len(WISHES)
    run("table", tmp_path, heat=True)
    table = (tmp_path / "temperatures" / "table.md").read_text()
    assert [line.split(" | ")[0] for line in table.splitlines()[2:]] == ["| 0.3", "| 0.5", "| 0.7", "| 1"]


def test_what_is_wrong_is_said(tmp_path):
    _folder(tmp_path, 0)
    run("sheet", tmp_path)
    grades = _grade(tmp_path, 0, "ABC")
    for wrong in (0, 6, None):
        (tmp_path / "grades.json").write_text(json.dumps(grades | {"7": grades["7"] | {"B": [wrong, ""]}}))
        with pytest.raises(InvalidArgument, match="text B of sheet 7"):
            sheet.table_of(tmp_path)
    with pytest.raises(InvalidArgument, match="unknown wishes twet"):
        run("write", tmp_path, names=["twet"])
    with pytest.raises(InvalidArgument, match="no step"):
        run("grade", tmp_path)
