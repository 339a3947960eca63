"""Allowed-token masks after every prefix of accepted texts: Locore, llguidance, xgrammar and outlines-core, side by side.

Microseconds of CPU on one thread. "First" is the first walk through the texts with a freshly compiled constraint, "again" the
walks after it. Only Locore looks ahead to the end of the text: the others would allow what cannot be completed within the
length. "None kept" computes every mask, "plain path" is `circuit.allowed(prefix)`. Locore's masks are Booleans, theirs are
bits; `apply` puts a mask on float32 logits, each with its own function.

    python benchmarks/vocabularies.py --text ../shared/data/text -o DIR
    python benchmarks/masks.py --vocabularies DIR --words FILE [--json benchmarks/results/masks.json]

The peers (llguidance 1.5.0, xgrammar 0.2.8, outlines-core 0.2.14) are best installed in an environment of their own, with
Locore by `pip install --no-deps`.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import gc
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _machine import machine
from mask_engines import ENGINES, Case, Engine, NotExpressible, Vocabulary

import locore
from locore.circuits import LeftToRight
from locore.circuits.masks import MaskReader, stack_masks

ROOT = Path(__file__).resolve().parents[1]
WORDS = ROOT.parent / "shared" / "data" / "detox" / "ldnoobw_en.txt"
SIZES = (32_000, 128_000)
GOAL = 60.0  # µs, the median at 32k
FRESH = 3  # compilations, each with a first walk
BATCH = 64

PASSAGES = [
    " The quick brown fox jumps over the lazy dog while the good people of the town drink tea in the garden and talk about the"
    " long winter, the price of bread and the new railway; then they eat their dinner, wash the dishes and go home to sleep for"
    " ten hours before the long day of work tomorrow, which begins at five in the morning.",
    " In 1905 the young engineer moved to Bern, where he read about light, time and motion in the evening. He wrote four short"
    " papers, and nobody at the office knew how far his ideas would reach. Twenty years later every student had heard of him,"
    " and the little flat above the street had become a museum.",
    " def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n    return total / len(values)\n\n"
    " def spread(values):\n    centre = mean(values)\n    return sum((v - centre) ** 2 for v in values) / len(values)\n",
]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue", "amber"]}, "maxItems": 3},
        "active": {"type": "boolean"},
    },
    "required": ["name", "age", "tags", "active"],
    "additionalProperties": False,
}
PEOPLE = [
    '{"name": "Jane Doe", "age": 34, "tags": ["red", "green"], "active": true}',
    '{"name": "Ångström, A. J.", "age": -7, "tags": [], "active": false}',
    '{"name": "the well-known name", "age": 123456, "tags": ["blue", "amber", "blue"], "active": true}',
    '{"name": "x", "age": 0, "tags": ["amber"], "active": false}',
]


def cases(words: Path) -> list[Case]:
    """The constraints and texts that satisfy them."""
    listed = [line.strip() for line in words.read_text().splitlines() if line.strip()]
    variants = sorted({form for word in listed for form in (word, word.capitalize(), word.upper())})
    date = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    email = r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*\.[a-zA-Z]{2,}"
    return [
        Case(f"ban, {len(listed)} phrases", "ban", variants, PASSAGES, 64),
        Case("regex, ISO date", "regex", date, ["2026-11-20", "1905-06-30", "0001-12-01", "1789-07-14"], 12),
        Case("regex, e-mail", "regex", email, ["jane.doe@example.org", "a+b@mail-3.uni.ac.uk", "info@locore.dev"], 24),
        Case("JSON schema", "json", PERSON, PEOPLE, 64),
    ]


@dataclass
class Times:
    """Microseconds of every mask and of every step to the next one, and which texts were refused on the way."""

    mask: list[float] = field(default_factory=list)
    advance: list[float] = field(default_factory=list)
    refused: set[tuple[int, ...]] = field(default_factory=set)

    def summary(self) -> dict[str, float]:
        mask, advance = np.array(self.mask), np.array(self.advance)
        return {
            "masks": len(mask),
            "texts_refused": len(self.refused),
            "mask_median_us": float(np.median(mask)),
            "mask_p95_us": float(np.percentile(mask, 95)),
            "mask_max_us": float(mask.max()),
            "advance_median_us": float(np.median(advance)),
            "advance_p95_us": float(np.percentile(advance, 95)),
        }


def walk(engine: Engine, grammar: Any, texts: list[list[int]], length: int, times: Times) -> None:
    """Read every text token by token and take the mask after every prefix, that of the whole text included."""
    for ids in texts:
        walker = engine.start(grammar)
        for token in [*ids, None]:
            if walker.position == length:
                break
            start = time.process_time_ns()
            mask = walker.mask()
            times.mask.append((time.process_time_ns() - start) / 1e3)
            if token is None:
                break
            if not walker.allows(mask, token):  # an engine's mistake; the other texts count
                if engine.package == "locore":
                    raise RuntimeError(f"Locore forbids token {token} at {walker.position} of {ids}")
                times.refused.add(tuple(ids))
                break
            start = time.process_time_ns()
            walker.advance(token)
            times.advance.append((time.process_time_ns() - start) / 1e3)


def measure(engine: Engine, case: Case, texts: list[list[int]], repeats: int) -> dict[str, Any]:
    """One engine on one case; raises NotExpressible."""
    first, again, seconds = Times(), Times(), []
    grammar = None
    for _ in range(FRESH):
        start = time.process_time()
        grammar = engine.compile(case)
        seconds.append(time.process_time() - start)
        walk(engine, grammar, texts, case.length, first)
    for _ in range(repeats):
        walk(engine, grammar, texts, case.length, again)
    record = {"look_ahead": engine.look_ahead, "compile_cpu_seconds": min(seconds)}
    record |= {"first": first.summary(), "again": again.summary()}
    return record | {"apply_median_us": apply_time(engine, grammar)}


def apply_time(engine: Engine, grammar: Any) -> float | None:
    """Microseconds to put a mask on the logits of one text; None where the engine leaves that to others."""
    walker = engine.start(grammar)
    mask, logits = walker.mask(), torch.zeros(1, engine.vocabulary.size)
    found = [engine_time(lambda: engine.apply(logits, mask)) for _ in range(100)]
    return None if not found else float(np.median(found[10:]))


def engine_time(work: Callable[[], object]) -> float:
    """Microseconds of CPU."""
    start = time.process_time_ns()
    work()
    return (time.process_time_ns() - start) / 1e3


def random_prefixes(reader: LeftToRight, time_read: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Long[BATCH, time] tokens, each drawn evenly from those that are allowed, and the states after them."""
    generator = torch.Generator().manual_seed(0)
    states, tokens = reader.initial(BATCH), []
    for position in range(time_read):
        allowed = reader.allowed_tokens(position, states)
        tokens.append(allowed.float().multinomial(1, generator=generator)[:, 0])
        states = reader.step(position, states, tokens[-1])
    return torch.stack(tokens, 1), states


def batch(case: Case, vocabulary: Vocabulary, repeats: int = 10) -> dict[str, Any]:
    """Milliseconds of CPU for the masks after different prefixes together."""
    circuit = locore.compile(case.alpha(), vocabulary.tokenizer, case.length, use_cache=False)
    assert circuit.reader is not None
    time_read = case.length // 3
    prefixes, states = random_prefixes(circuit.reader, time_read)
    first = MaskReader(circuit.reader)

    def readers(mask_reader: MaskReader) -> list[MaskReader]:
        found = []
        for prefix in prefixes.tolist():
            found.append(mask_reader.copy())
            for token in prefix:
                found[-1].advance(token)
        return found

    plain = circuit.allowed(prefixes)
    assert torch.equal(plain, stack_masks(readers(first)))
    fresh = [readers(MaskReader(circuit.reader)) for _ in range(repeats)]
    kept, out = readers(first), torch.empty_like(plain)
    work: dict[str, Callable[[int], object]] = {
        "circuit.allowed(prefixes)": lambda _: circuit.allowed(prefixes),
        "reader.allowed_tokens(position, states)": lambda _: circuit.reader.allowed_tokens(time_read, states),
        "stack_masks, first": lambda i: stack_masks(fresh[i]),
        "stack_masks, again": lambda _: stack_masks(kept, out=out),
    }
    record: dict[str, Any] = {"prefixes": len(prefixes.unique(dim=0)), "prefix_tokens": time_read}
    record |= {"states": len(states.unique()), "classes": circuit.num_classes}
    for name, call in work.items():
        record[name] = float(np.median([engine_time(partial(call, i)) for i in range(repeats)])) / 1e3
    return record


def run(vocabulary: Vocabulary, chosen: list[Case], repeats: int) -> dict[str, Any]:
    """All engines on all cases of one vocabulary."""
    record: dict[str, Any] = {"tokens": vocabulary.size, "cases": {}, "batch_ms": {}}
    engines = [kind(vocabulary) for kind in ENGINES]
    record["set_up_cpu_seconds"] = {engine.name: engine.set_up_seconds for engine in engines}
    for case in chosen:
        texts = [vocabulary.tokenizer.encode(text)[: case.length] for text in case.texts]
        found: dict[str, Any] = {"length": case.length, "text_tokens": [len(ids) for ids in texts], "engines": {}}
        for engine in engines:
            gc.collect()
            gc.disable()
            try:
                found["engines"][engine.name] = measure(engine, case, texts, repeats)
            except NotExpressible as reason:
                found["engines"][engine.name] = {"not_expressible": str(reason)}
            finally:
                gc.enable()
            show(vocabulary.size, case, engine.name, found["engines"][engine.name])
        record["cases"][case.name] = found
    for case in chosen:
        record["batch_ms"][case.name] = batch(case, vocabulary)
        print(f"{vocabulary.size:,} {case.name}, {BATCH} prefixes, ms: {record['batch_ms'][case.name]}", flush=True)
    return record


def show(size: int, case: Case, name: str, row: dict[str, Any]) -> None:
    if "not_expressible" in row:
        print(f"{size:7,}  {case.name:18}{name:20}  –  {row['not_expressible']}", flush=True)
        return
    first, again = row["first"], row["again"]
    print(
        f"{size:7,}  {case.name:18}{name:20}first {first['mask_median_us']:8.1f} ({first['mask_p95_us']:8.1f})"
        f"  again {again['mask_median_us']:8.1f} ({again['mask_p95_us']:8.1f})  advance {again['advance_median_us']:6.1f}"
        f"  apply {row['apply_median_us'] or float('nan'):6.1f} µs  compile {row['compile_cpu_seconds']:.3f} s"
        + (f"  refused {again['texts_refused']}" if again["texts_refused"] else ""),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabularies", type=Path, required=True, help="folder with bpe32000.json and bpe128000.json")
    parser.add_argument("--words", type=Path, default=WORDS, help="phrases of the ban list")
    parser.add_argument("--repeats", type=int, default=10, help="walks after the first")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--json", type=Path, help="also write the results here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    record: dict[str, Any] = {"machine": machine(), "goal_median_us_at_32k": GOAL}
    record["clock_us"] = float(np.median([engine_time(lambda: None) for _ in range(1000)]))
    record["versions"] = {kind.package: kind.version() for kind in ENGINES}
    chosen = cases(options.words)
    record["vocabularies"] = {
        str(size): run(Vocabulary.load(options.vocabularies / f"bpe{size}.json"), chosen, options.repeats)
        for size in options.sizes
    }
    record["load"] = os.getloadavg()
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
