"""Grammars of SynCode, Outlines, Lark, llama.cpp and transformers-CFG: taken, right, and how soon there is a first token.

Each grammar is read as its authors wrote it, or with one named change. Texts are drawn under it; others differ from them by
one character. Lark's Earley parser, which shares nothing with Locore, says of all of them whether they are sentences: "refused"
counts texts that were drawn and are none, "more" texts that Locore takes and the parser does not, "less" the reverse. Where
Lark makes a LALR parser of a grammar, with the lexer that SynCode's grammars are for, "LALR" has the same two numbers. Seconds
are CPU seconds from the text of a grammar to the first mask over the tokens of SmolLM2, the tokenizer being there already; the
least of several, with a * where the grammar had to be changed. Engines take turns. llguidance reads GBNF by the converter that
comes with it; xgrammar has no Lark.

CLONES is a folder with a clone OWNER/NAME of each repository in `locore_lab/grammars/sources.json`, at the commit named there.
Needs lark and llguidance; xgrammar where it is installed.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import locore
from locore.automata.grammar.recogniser import as_meant
from locore.constraints.context_free import Grammar
from locore.kernel.errors import LocoreError
from locore.models.loading import tokenizer_parts
from locore_lab.grammars import Listed, listed
from locore_lab.grammars.independent import Independent
from locore_lab.grammars.judging import judged
from locore_lab.harness import Case, Row, Some, markdown, measurement
from locore_lab.mask_engines import Constrained, Engine, Locore, NotTaken, Vocabulary
from locore_lab.mask_engines.peers import LLGuidance, XGrammar
from locore_lab.shared import rows_meant, timed

ENGINES: dict[str, Callable[[Vocabulary], Engine]] = {"locore": Locore, "llguidance": LLGuidance, "xgrammar": XGrammar}
SUMS = ("drawn", "drawn_refused", "texts", "sentences", "more", "less", "apart")
SHOWN = 160  # characters of a message
DRAWN_BY_BOTH = ("Outlines: JSON", "SynCode: SQL", "Lark: calculator", "llama.cpp: chess moves", "transformers-CFG: brackets")


def read(one: Listed, text: str) -> tuple[Row, Grammar | None]:
    """Is it taken, and how?"""
    try:
        return {"taken": "yes"}, locore.grammar(text, one.syntax)
    except LocoreError as error:
        refused = str(error)[:SHOWN]
    if not one.change:
        return {"taken": "no", "refused": refused}, None
    return {"taken": "changed", "change": one.change, "refused": refused}, locore.grammar(one.changed(text), one.syntax)


def first_token(engine: Engine, case: Constrained) -> Any:
    """From the text of a grammar to a mask."""
    return engine.start(engine.compile(case)).mask()


def seconds(one: Listed, text: str, length: int, repeats: int, vocabulary: str) -> Row:
    """To the first token, for each engine; and what it says against the grammar as it stands.

    Each gets it as it stands, then with what is changed for Locore, then with all that Locore changes itself.
    """
    engines = made(vocabulary)
    row: Row = {}
    found: dict[str, float] = {}
    for _ in range(repeats):
        for name, engine in engines.items():
            for written in dict.fromkeys([text, one.changed(text), as_meant(one.changed(text))]):
                try:
                    taken = timed(partial(first_token, engine, Constrained(one.name, one.syntax, written, (), length)))[1]
                except NotTaken as error:
                    row.setdefault(f"{name}_refused", str(error)[:SHOWN])
                    continue
                found[name] = min(taken, found.get(name, taken))
                break
    return {**row, **{f"{name}_seconds": taken for name, taken in found.items()}}


@cache
def made(vocabulary: str) -> dict[str, Engine]:
    """The engines that are installed, each ready with the tokens of a model."""
    fast, size, ends = tokenizer_parts(vocabulary)
    words = Vocabulary(fast, locore.Tokenizer.from_huggingface(fast, size, ends))
    engines = {name: make(words) for name, make in ENGINES.items() if find_spec(name)}
    for engine in engines.values():  # what is made once for a vocabulary
        first_token(engine, Constrained("", "regex", "a", (), 2))
    return engines


def measured(one: Listed, clones: Path, repeats: int, vocabulary: str, model: str, options: dict[str, Any]) -> Row:
    """All of a grammar."""
    text = one.text(clones)
    row, grammar = read(one, text)
    if grammar is not None:
        row |= judged(loaded(model), grammar, other(one, grammar.text), options)
    return row | seconds(one, text, options["length"], repeats, vocabulary)


def drawn_and_judged(one: Listed, clones: Path, model: str, options: dict[str, Any]) -> Row:
    """The same without seconds, by another model."""
    grammar = locore.grammar(one.text(clones), one.syntax)
    return judged(loaded(model), grammar, other(one, grammar.text), options)


def other(one: Listed, text: str) -> Independent:
    """Lark's reading of a grammar."""
    return Independent(text) if one.syntax == "lark" else Independent.of_gbnf(text)


def first(name: str, row: Row) -> str:
    """Seconds, with a mark where the grammar had to be changed."""
    taken = row.get(f"{name}_seconds")
    return "–" if taken is None else f"{taken:.3f}" + "*" * (f"{name}_refused" in row)


def by_source(rows: list[Row]) -> str:
    """A table of sums and medians."""
    sources: dict[str, list[Row]] = {}
    for row in rows:
        if "taken" in row:
            sources.setdefault(row["grammar"].split(":")[0], []).append(row)
    lines = []
    for source, of in [*sources.items(), ("all", [row for part in sources.values() for row in part])]:
        took = [str(sum(row["taken"] == kind for row in of)) for kind in ("yes", "changed", "no")]
        sums = [sum(row.get(name, 0) for row in of) for name in SUMS]
        engines = [[row[f"{name}_seconds"] for row in of if f"{name}_seconds" in row] for name in ENGINES]
        medians = [f"{median(found):.3f} ({len(found)})" if found else "–" for found in engines]
        lines.append([source, ", ".join(took), *map(str, sums), *medians])
    heads = ["source", "as it stands, changed, refused", *(name.replace("_", ", ") for name in SUMS)]
    return markdown([*heads, *(f"{name}: median s (grammars)" for name in ENGINES)], lines)


loaded = cache(locore.load)
FIELDS: dict[str, Callable[[Row], object]] = {
    "said": lambda row: row.get("change") or (row["refused"] if row["taken"] == "no" else "yes"),
    "lalr": lambda row: f"{row['lalr_more']}, {row['lalr_less']}" if "lalr_more" in row else "–",
    **{f"first_{name}": partial(first, name) for name in ENGINES},
}


@measurement(
    "grammar | licence | taken | drawn, refused | near them, sentences | more, less | LALR "
    "| Locore s | llguidance s | xgrammar s",
    "{grammar} | {licence} | {said} | {drawn}, {drawn_refused} | {texts}, {sentences} | {more}, {less} | {lalr} "
    "| {first_locore} | {first_llguidance} | {first_xgrammar}",
    quick={"particles": 4, "changes": 2, "repeats": 1},
    fields=FIELDS,
    after=by_source,
    real=(
        "model | grammar | drawn, refused | near them, sentences | more, less | LALR",
        "{model} | {grammar} | {drawn}, {drawn_refused} | {texts}, {sentences} | {more}, {less} | {lalr}",
    ),
)
def run(
    clones: Annotated[Path, "folder of clones OWNER/NAME of the repositories"],
    grammar: Annotated[Some, "only those whose names begin like this"] = None,
    model: Annotated[str, "draws the texts"] = "tiny",
    real: Annotated[str, "draws texts of a few of them, too; its tokens are those of the first token"] = "smollm2",
    length: Annotated[int, "tokens of a text, at most"] = 48,
    particles: Annotated[int, "texts drawn under each grammar"] = 24,
    changes: Annotated[int, "texts beside each that is drawn"] = 10,
    repeats: Annotated[int, "first tokens, of which the least counts"] = 3,
    seed: int = 0,
) -> Iterator[Case]:
    meant = rows_meant(listed(), grammar or ())
    options = {"length": length, "particles": particles, "changes": changes, "seed": seed}
    for one in meant:
        key = {"grammar": one.name, "repository": one.repository, "path": one.path, "licence": one.licence}
        yield key, partial(measured, one, clones, repeats, real, model, options)
    for one in meant:
        if one.name in DRAWN_BY_BOTH:
            yield {"part": "real", "model": real, "grammar": one.name}, partial(drawn_and_judged, one, clones, real, options)
