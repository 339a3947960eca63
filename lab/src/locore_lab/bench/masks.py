"""Allowed-token masks after every prefix of accepted texts: Locore, llguidance, xgrammar and outlines-core, side by side.

Microseconds of CPU on one thread. "First" is the first walk through the texts with a freshly compiled constraint, "again" the
walks after it, "cold" one more in which other data fill the processor's caches before every mask, as a language model does.
Only Locore looks ahead to the end of the text: the others would allow what cannot be completed within the length. "None kept"
computes every mask, "plain path" is `circuit.allowed(prefix)`. Locore's masks are Booleans, theirs are bits; `apply` puts a
mask on float32 logits, each with its own function. "Alike" counts the masks that equal Locore's where the length is no matter,
"more" and "less" those that allow what Locore's forbid, and the reverse.

The vocabularies are those of `locore bench vocabularies`. The peers (llguidance 1.5.0, xgrammar 0.2.8, outlines-core 0.2.14)
are best installed in an environment of their own, with Locore by `pip install --no-deps`; set RAYON_NUM_THREADS=1.
"""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

import locore
from locore.circuits import LeftToRight
from locore.circuits.masks import MaskReader, stack_masks
from locore_lab.harness import Case, Row, Some, measurement
from locore_lab.mask_engines import (
    SIZES,
    WORDS,
    ComputingLocore,
    Constrained,
    Engine,
    Locore,
    NotTaken,
    PlainLocore,
    Vocabulary,
    constraints,
)
from locore_lab.mask_engines.peers import LLGuidance, OutlinesCore, XGrammar

ENGINES: dict[str, Callable[[Vocabulary], Engine]] = {
    "locore": Locore,
    "locore, none kept": ComputingLocore,
    "locore, plain path": PlainLocore,
    "llguidance": LLGuidance,
    "xgrammar": XGrammar,
    "outlines-core": OutlinesCore,
}
FRESH = 3  # compilations, each with a first walk
BATCH = 64
OTHER_DATA = torch.zeros(2**23, dtype=torch.long)  # 64 MB


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


def walk(engine: Engine, grammar: Any, texts: list[list[int]], length: int, times: Times, cold: bool = False) -> None:
    """Read every text token by token and take the mask after every prefix, that of the whole text included."""
    for ids in texts:
        walker = engine.start(grammar)
        for position, token in enumerate([*ids, None][:length]):
            if cold:
                OTHER_DATA.add_(1)
            start = time.process_time_ns()
            mask = walker.mask()
            times.mask.append((time.process_time_ns() - start) / 1e3)
            if token is None:
                break
            if not walker.allows(mask, token):  # an engine's mistake; the other texts count
                if engine.package == "locore":
                    raise RuntimeError(f"Locore forbids token {token} at {position} of {ids}")
                times.refused.add(tuple(ids))
                break
            start = time.process_time_ns()
            walker.read(token)
            times.advance.append((time.process_time_ns() - start) / 1e3)


def measured(engine: Engine, case: Constrained, texts: list[list[int]], repeats: int) -> Row:
    """One engine on one case; raises NotTaken."""
    first, again, cold, seconds = Times(), Times(), Times(), []
    for _ in range(FRESH):
        start = time.process_time()
        grammar = engine.compile(case)
        seconds.append(time.process_time() - start)
        walk(engine, grammar, texts, case.length, first)
    for _ in range(repeats):
        walk(engine, grammar, texts, case.length, again)
    walk(engine, grammar, texts, case.length, cold, cold=True)
    record: Row = {"version": engine.version(), "look_ahead": engine.look_ahead, "compile_cpu_seconds": min(seconds)}
    record |= {"first": first.summary(), "again": again.summary(), "cold": cold.summary()}
    return record | {"apply_median_us": apply_time(engine, grammar), "alike": alike(engine, case, texts)}


def apply_time(engine: Engine, grammar: Any) -> float:
    """Microseconds to put a mask on the logits of one text."""
    mask, logits = engine.start(grammar).mask(), torch.zeros(1, engine.vocabulary.size)
    found = [engine_time(lambda: engine.apply(logits, mask)) for _ in range(100)]
    return float(np.median(found[10:]))


def alike(engine: Engine, case: Constrained, texts: list[list[int]]) -> dict[str, int]:
    """How many masks equal Locore's, allow more, allow less; so many tokens are left that the look-ahead forbids nothing."""
    size, without_end = engine.vocabulary.size, replace(case, length=2 * case.length)
    reference, grammar = Locore(engine.vocabulary), engine.compile(without_end)
    expected = reference.compile(without_end)
    found = {"masks": 0, "equal": 0, "more": 0, "less": 0}
    for ids in texts:
        walkers = reference.start(expected), engine.start(grammar)
        for token in [*ids, None]:
            ours, theirs = (walker.unpacked(walker.mask(), size) for walker in walkers)
            more, less = bool((theirs & ~ours).any()), bool((ours & ~theirs).any())
            for name, value in {"masks": True, "equal": not more and not less, "more": more, "less": less}.items():
                found[name] += value
            if token is None or not theirs[token]:
                break
            for walker in walkers:
                walker.read(token)
    return found


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


def readers_after(prefixes: torch.Tensor, first: MaskReader) -> list[MaskReader]:
    """A reader for each prefix; they share what `first` keeps."""
    found = []
    for prefix in prefixes.tolist():
        found.append(first.copy())
        for token in prefix:
            found[-1].advance(token)
    return found


def batch(case: Constrained, vocabulary: Vocabulary, repeats: int = 10) -> Row:
    """Milliseconds of CPU for the masks after different prefixes together."""
    circuit = locore.compile(case.alpha(), vocabulary.tokenizer, case.length, use_cache=False)
    reader = circuit.reader
    assert reader is not None
    time_read = case.length // 3
    prefixes, states = random_prefixes(reader, time_read)
    plain = circuit.allowed(prefixes)
    kept, out = readers_after(prefixes, MaskReader(reader)), torch.zeros_like(plain)
    assert torch.equal(plain, stack_masks(kept))
    fresh = [readers_after(prefixes, MaskReader(reader)) for _ in range(repeats)]
    work: dict[str, Callable[[int], object]] = {
        "allowed": lambda _: circuit.allowed(prefixes),
        "allowed_tokens": lambda _: reader.allowed_tokens(time_read, states),
        "stacked_first": lambda i: stack_masks(fresh[i], out=out),
        "stacked_again": lambda _: stack_masks(kept, out=out),
    }
    record: Row = {"prefixes": len(prefixes.unique(dim=0)), "prefix_tokens": time_read}
    record |= {"states": len(states.unique()), "classes": circuit.num_classes}
    for name, call in work.items():
        record[name] = float(np.median([engine_time(partial(call, i)) for i in range(repeats)])) / 1e3
    return record


def in_turn(name: str, case: Constrained, vocabulary: Vocabulary, repeats: int) -> Row:
    """One engine on one case, while no garbage is collected."""
    texts = [vocabulary.tokenizer.encode(text)[: case.length] for text in case.texts]
    engine = ENGINES[name](vocabulary)
    gc.collect()
    gc.disable()
    try:
        return measured(engine, case, texts, repeats)
    except NotTaken as reason:
        return {"not_taken": str(reason)}
    finally:
        gc.enable()


def _walk(name: str) -> Callable[[Row], str]:
    return lambda row: f"{us(row[name]['mask_median_us'])} ({us(row[name]['mask_p95_us'])})"


def us(value: float) -> str:
    """Microseconds."""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


@measurement(
    "engine, case, tokens | first | again | cold | `advance` | alike | compile, s",
    "{name} | {first_walk} | {again_walk} | {cold_walk} | {step} | {alike[equal]} of {alike[masks]} "
    "| {compile_cpu_seconds:.3f}",
    fields={
        "name": lambda row: f"{row['engine']}, {row['case']}, {row['tokens']:,}",
        **{f"{name}_walk": _walk(name) for name in ("first", "again", "cold")},
        "step": lambda row: us(row["again"]["advance_median_us"]),
    },
    batch=(
        " | tokens | distinct states | `circuit.allowed(prefixes)` | `reader.allowed_tokens(position, states)` "
        "| stack_masks, first | stack_masks, again",
        "{case} | {tokens:,} | {states} | {allowed:.2f} | {allowed_tokens:.2f} | {stacked_first:.2f} | {stacked_again:.2f}",
    ),
)
def run(
    vocabularies: Annotated[Path, "folder with bpe32000.json and bpe128000.json"],
    words: Annotated[Path, "phrases of the ban list"] = WORDS,
    size: Annotated[list[int], "tokens of a vocabulary"] = SIZES,
    engine: Annotated[Some, "only these"] = None,
    repeats: Annotated[int, "walks after the first"] = 10,
) -> Iterator[Case]:
    for tokens in size:
        vocabulary = Vocabulary.load(vocabularies / f"bpe{tokens}.json")
        for case in constraints(words):
            for name in engine or ENGINES:
                key = {"tokens": tokens, "case": case.name, "engine": name}
                yield key, partial(in_turn, name, case, vocabulary, repeats)
            yield {"part": "batch", "tokens": tokens, "case": case.name}, partial(batch, case, vocabulary)
