"""`locore bench grammars`: the independent reading is what it should be, and faults would be seen."""

from __future__ import annotations

import hashlib
import itertools
import json
import re

import pytest
from locore_lab.bench import grammars
from locore_lab.grammars import Listed, listed
from locore_lab.grammars.independent import Independent
from locore_lab.grammars.judging import changed, compared
from locore_lab.shared import RESULTS

import locore
from locore.kernel.errors import InvalidArgument

LISTS = 'start: "[" (WORD ("," WORD)*)? "]"\nWORD.2: /[ab]+/\n%ignore " "'
# In GBNF, and the same as a pattern, over these characters.
REGULAR = [
    ('root ::= "a"+ b-B?\nb-B ::= "]" | "\\\\"', r"a+[]\\]?", "a]\\"),
    ('root ::= [^\\]\\-a] | ("a" "-"){1,2}', r"[^]\-a]|(a-){1,2}", "a-]b"),
    ("root ::= | [a-b] root # nothing\n", r"[ab]*", "abc"),
    ('root ::= "a/\'"* (\n "\\"" |\n .{2} )', r"(a/')*(\"|[\s\S]{2})", "a/'\"\n"),
    ('root ::= "\\x41" [\\u00e9\\n]?', "A[é\n]?", "Aé\nn"),
    ('root ::= x{2}\nx ::= "" | [|^&~#]', r"[|^&~#]{0,2}", "|^#~"),
]


@pytest.mark.parametrize(("gbnf", "pattern", "letters"), REGULAR)
def test_the_independent_reading_of_gbnf(gbnf, pattern, letters):
    found, leaf = Independent.of_gbnf(gbnf), locore.grammar(gbnf, "gbnf")
    texts = ["".join(signs) for size in range(5) for signs in itertools.product(letters, repeat=size)]
    assert [found.earley(text) for text in texts] == [bool(re.fullmatch(pattern, text)) for text in texts]
    assert found.lalr("a") is None
    assert compared(leaf, found, texts).row() == {
        "texts": len(texts),
        "sentences": sum(map(found.earley, texts)),
        "more": 0,
        "less": 0,
        "apart": 0,
    }


@pytest.mark.parametrize(
    ("theirs", "more", "less"),
    [(LISTS, set(), set()), (LISTS.replace("[ab]", "[a]"), {"[b]"}, set()), (LISTS.replace("[ab]", "[abc]"), set(), {"[c]"})],
)
def test_a_difference_is_seen(theirs, more, less):
    leaf, other = locore.grammar(LISTS), Independent(theirs)
    texts = ["[]", "[a]", "[b]", "[c]", "[a,a]", "a", "[a,]", "[a"]
    for use_lalr in (False, True):
        found = compared(leaf, other, texts, use_lalr)
        assert (set(found.more), set(found.less), found.apart) == (more, less, [])


def test_a_machine_that_is_wrong_is_seen():
    leaf = locore.grammar(LISTS)
    leaf.__dict__["_machine_and_reader"] = locore.grammar('start: "["').machine(), leaf.reader
    found = compared(leaf, Independent(LISTS), ["[", "[]"])
    assert (found.more, found.less, found.apart) == (["["], ["[]"], ["[", "[]"])


def test_texts_near_others_differ_by_one_character():
    texts = ["[a,b]", "[]", ""]
    near = list(changed(texts, 30, 0))
    assert near == list(changed(texts, 30, 0)) and len(set(near)) == len(near) > 50
    assert not set(near) & set(texts)
    assert {len(one) - len("[a,b]") for one in near if len(one) > 3} == {-1, 0, 1}
    for one in near:
        assert any(len(one) - len(text) in (-1, 0, 1) and shared(one, text) >= max(len(one), len(text)) - 1 for text in texts)


def shared(one: str, two: str) -> int:
    """Characters that both begin and end with, at most all of the shorter one."""
    shorter = min(len(one), len(two))
    first = next((i for i in range(shorter) if one[i] != two[i]), shorter)
    last = next((i for i in range(shorter - first) if one[-1 - i] != two[-1 - i]), shorter - first)
    return first + last


def test_what_is_listed_is_said_exactly():
    found = listed()
    assert len({one.name for one in found}) == len(found) >= 30
    assert {part for one in found for part in one.licence.split(", ")} == {"MIT", "Apache-2.0", "BSD-3-Clause"}
    for one in found:
        assert re.fullmatch("[0-9a-f]{40}", one.commit) and re.fullmatch("[0-9a-f]{64}", one.sha256)
        assert bool(one.change) == bool(one.replace)
    assert set(grammars.DRAWN_BY_BOTH) <= {one.name for one in found}


@pytest.fixture
def clones(tmp_path):
    """A folder of clones with one grammar in a program, and what is listed of it."""
    content = f"other = 1\ngrammar = {LISTS.replace('start', 'begin')!r}\n"
    folder = tmp_path / "somebody" / "something"
    folder.mkdir(parents=True)
    (folder / "program.py").write_text(content)
    known = {"sha256": hashlib.sha256(content.encode()).hexdigest(), "commit": "c" * 40, "licence": "MIT"}
    known |= {"change": "its first rule is named start", "replace": (("begin:", "start:"),)}
    return tmp_path, Listed("lists", "somebody/something", path="program.py#grammar", **known)


def test_all_of_a_grammar(clones):
    folder, one = clones
    options = {"length": 12, "particles": 8, "changes": 6, "seed": 0}
    row = grammars.measured(one, folder, 1, "tiny", "tiny", options)
    assert row["taken"] == "changed" and 'no rule "start"' in row["refused"]
    assert row["drawn"] > 1 and row["texts"] > row["sentences"] > 0
    faults = ("drawn_refused", "drawn_apart", "more", "less", "apart", "lalr_more", "lalr_less")
    assert [row[name] for name in faults] == [0] * 7
    assert row["locore_seconds"] > 0 and "priority" in row["llguidance_refused"]
    assert "lists | MIT | its first rule is named start" in grammars.run.table([{"grammar": "lists", "licence": "MIT", **row}])


def test_a_grammar_that_is_not_there_or_is_another(clones):
    folder, one = clones
    with pytest.raises(InvalidArgument, match=f"git checkout {one.commit}"):
        one.text(folder / "nowhere")
    with pytest.raises(InvalidArgument, match="stands 0 times"):
        one.changed("start: begin")
    (folder / one.repository / "program.py").write_text("grammar = 'start: \"a\"'")
    with pytest.raises(InvalidArgument, match="another version"):
        one.text(folder)


def test_committed_results_have_no_faults():
    record = json.loads((RESULTS / "grammars.json").read_text())
    rows = [row for row in record["rows"] if "taken" in row]
    assert {row["grammar"] for row in rows} == {one.name for one in listed()}
    assert "/" not in record["settings"][
        "clones"
    ] and f"| all | {sum(row['taken'] == 'yes' for row in rows)}, " in grammars.by_source(rows)
    assert all(row["drawn_refused"] == row["apart"] == row["drawn_apart"] == 0 for row in rows if row["taken"] != "no")
