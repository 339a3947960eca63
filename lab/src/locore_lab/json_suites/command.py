"""The official JSON-Schema-Test-Suite and MaskBench, through all engines in one run.

An instance is written compactly, in its own order of properties, and read as the tokenizer's tokens: it is accepted if every
token may come and the text may end. A case is passed when the schema is taken, every valid instance accepted, every invalid one
refused.
"""

from __future__ import annotations

import gc
import json
import lzma
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from locore.io import write_whole
from locore.kernel.errors import InvalidArgument
from locore_lab.harness import Fields, Output, Row, Some, experiment, option, table
from locore_lab.mask_engines import Constrained, Engine, Locore, NotTaken, Vocabulary
from locore_lab.mask_engines.peers import LLGuidance, OutlinesCore, XGrammar
from locore_lab.shared import shown

ANY = {"order": "any", "whitespace": "compact", "integers": "any", "escapes": "any"}  # all spellings of the standard
MAKERS: dict[str, Callable[[Vocabulary], Engine]] = {
    "locore": lambda vocabulary: Locore(vocabulary, "Locore, order=any", **ANY),
    "locore-schema": lambda vocabulary: Locore(vocabulary, "Locore, order=schema", order="schema"),
    "llguidance": LLGuidance,
    "xgrammar": lambda vocabulary: XGrammar(vocabulary, strict=False),
    "xgrammar-strict": lambda vocabulary: XGrammar(vocabulary, strict=True, name="xgrammar, strict"),
    "outlines-core": OutlinesCore,
}
SPARE = 128  # tokens beyond the longest instance, for engines that are told a length
CLOCK = time.process_time


@dataclass(frozen=True)
class SchemaCase:
    """A schema with instances."""

    name: str
    schema: Any
    instances: tuple[str, ...]
    valid: tuple[bool, ...]
    formats: bool  # do the instances mean `format` to be asserted?
    documents: dict[str, Any] = field(default_factory=dict)  # that the schema may refer to, by URI


@dataclass
class Tally:
    """What became of the cases of one engine and one suite."""

    engine: str
    suite: str
    cases: int = 0
    taken: int = 0
    passed: int = 0
    valid: int = 0
    invalid: int = 0
    valid_refused: int = 0
    invalid_accepted: int = 0
    compile_seconds: list[float] = field(default_factory=list)
    mask_seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def count(self, engine: Engine, case: SchemaCase, tokens: list[list[int]]) -> None:
        """Put one case through an engine."""
        self.cases += 1
        length = max(map(len, tokens), default=0) + SPARE
        asked = Constrained(case.name, "json", case.schema, (), length, (",", ":"), case.formats, case.documents)
        start = CLOCK()
        try:
            compiled = engine.compile(asked)
        except NotTaken as error:
            self.refused[case.name] = str(error)[:200]
            return
        self.compile_seconds.append(CLOCK() - start)
        self.taken += 1
        right = True
        for ids, is_valid in zip(tokens, case.valid, strict=True):
            accepted = self._accepts(engine, compiled, ids, is_valid)
            self.valid += is_valid
            self.invalid += not is_valid
            self.valid_refused += is_valid and not accepted
            self.invalid_accepted += accepted and not is_valid
            right &= accepted == is_valid
        self.passed += right
        if not right:
            self.wrong.append(case.name)

    def _accepts(self, engine: Engine, compiled: Any, ids: list[int], is_valid: bool) -> bool:
        follower = engine.start(compiled)
        for token in ids:
            if is_valid:
                start = CLOCK()
                follower.mask()
                self.mask_seconds.append(CLOCK() - start)
            if not follower.read(token):
                return False
        return follower.may_end()

    def summary(self) -> dict[str, Any]:
        """Numbers alone."""
        row = asdict(self)
        for name in ("compile_seconds", "mask_seconds"):
            seconds = row.pop(name) or [float("nan")]
            row |= {f"{name}_p{p}": float(np.percentile(seconds, p)) for p in (50, 99)}
        return row


def official(folder: Path) -> Iterator[tuple[str, SchemaCase]]:
    """The required and the optional groups of draft 2020-12, where formats are annotations; and those of formats, asserted."""
    base = folder / "test-suite" / "tests" / "draft2020-12"
    documents = dict(_remotes(folder / "test-suite" / "remotes"))
    more = base / "optional"
    for suite, path, formats in (("required", base, False), ("optional", more, False), ("formats", more / "format", True)):
        for file in sorted(path.glob("*.json")):
            for group in json.loads(file.read_text()):
                tests = [(_compact(test["data"]), test["valid"]) for test in group["tests"]]
                written = [(text, valid) for text, valid in tests if _is_unicode(text)]
                texts, valid = zip(*written, strict=True)
                name = f"{file.stem}: {group['description']}"
                yield suite, SchemaCase(name, group["schema"], texts, valid, formats, documents)


def _remotes(folder: Path) -> Iterator[tuple[str, Any]]:
    """What the suite wants to be known beforehand, at its addresses: what is for all drafts, and for this one."""
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder).as_posix()
        if not name.startswith(("draft", "v1/")) or name.startswith("draft2020-12/"):
            yield f"http://localhost:1234/{name}", json.loads(path.read_text())


def maskbench(folder: Path, number: int, seed: int) -> Iterator[tuple[str, SchemaCase]]:
    """A sample of the cases."""
    with lzma.open(folder / "maskbench_dev.jsonl.xz", "rt") as file:
        lines = file.read().splitlines()
    for line in random.Random(seed).sample(lines, min(number, len(lines))):
        row = json.loads(line)
        yield "MaskBench", SchemaCase(row["id"], row["schema"], tuple(row["instances"]), tuple(row["valid"]), True)


def _maker(name: str) -> Callable[[Vocabulary], Engine]:
    """The maker of an engine, whose package is here."""
    if name not in MAKERS:
        raise InvalidArgument(f"there is no engine {name!r}; choose from {', '.join(MAKERS)}.")
    package = name.removesuffix("-strict").removesuffix("-schema").replace("-", "_")
    if find_spec(package) is None:
        raise InvalidArgument(
            f"the engine {name!r} is not installed; pip install {package.replace('_', '-')}, or name others with --engine."
        )
    return MAKERS[name]


@experiment("locore bench json --data ../shared/data/json --tokenizer smollm2/tokenizer.json -o results")
def run(
    output: Output,
    data: Annotated[Path, option("Folder with test-suite/ and maskbench_dev.jsonl.xz.")],
    tokenizer: Annotated[Path, option("A tokenizer.json, of a byte-level BPE.")],
    cases: Annotated[int, option("Of MaskBench, drawn by the seed.")] = 300,
    engine: Annotated[Some, option(f"Only these: {', '.join(MAKERS)}.")] = None,
    seed: Annotated[int, option("Of the sample.")] = 0,
) -> None:
    """JSON Schema beside other engines: schemas taken, instances judged rightly, seconds of compiling and of masks."""
    vocabulary = Vocabulary.load(tokenizer)
    makers = {name: _maker(name) for name in engine or MAKERS}
    known = [*official(data), *maskbench(data, cases, seed)]
    tokens = [[vocabulary.tokenizer.encode(text) for text in case.instances] for _, case in known]
    tallies: list[Tally] = []
    gc.freeze()  # the cases are no garbage of an engine
    for make in makers.values():
        made = make(vocabulary)
        found: dict[str, Tally] = {}
        for (suite, case), ids in shown(list(zip(known, tokens, strict=True)), made.name):
            found.setdefault(suite, Tally(made.name, suite)).count(made, case, ids)
        tallies += found.values()
        _write(output, tallies, {"maskbench_cases": cases, "seed": seed, "vocab_size": vocabulary.size})


def _write(output: Path, tallies: list[Tally], settings: dict[str, Any]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    names = ("llguidance", "xgrammar", "outlines_core", "jsonschema")
    rows = [tally.summary() for tally in tallies]
    body = {"settings": settings, "versions": {name: _version(name) for name in names}, "rows": rows}
    write_whole(output / "results.json", json.dumps(body, indent=1))
    write_whole(output / "table.md", report(rows))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


COLUMNS = (
    "engine | cases | taken | passed | valid refused | invalid accepted | compile p50 / p99, s | mask p50 / p99, ms",
    "{engine} | {cases} | {taken} | {passed} | {valid_refused} of {valid} | {invalid_accepted} of {invalid} "
    "| {compile_seconds_p50:.4f} / {compile_seconds_p99:.3f} | {mask_p50:.3f} / {mask_p99:.2f}",
)
FIELDS: Fields = {
    "mask_p50": lambda row: 1000 * row["mask_seconds_p50"],
    "mask_p99": lambda row: 1000 * row["mask_seconds_p99"],
}


def report(rows: list[Row]) -> str:
    """A section for each suite."""
    suites = dict.fromkeys(row["suite"] for row in rows)
    return "".join(
        f"\n{suite}\n\n{table([row for row in rows if row['suite'] == suite], COLUMNS, FIELDS)}\n" for suite in suites
    )


def _compact(value: Any) -> str:
    """JSON without whitespace, numbers in decimal notation."""
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_compact(name)}:{_compact(item)}" for name, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= one <= "\udfff" for one in text)
