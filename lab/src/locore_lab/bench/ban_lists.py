"""Banning a thousand phrases over large vocabularies: compile time, memory, and queries for 32 distributions.

Each case runs in a process of its own, so that peak memory is its own. The baseline of the same run is the plain lift: the next
state for each state and token as one table, made by walking all tokens through the byte automaton, which is where the work of a
dense compiler begins.
The vocabularies are those of `locore bench vocabularies`.
"""

import os
import random
import resource
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

import locore
from locore import Tokenizer, ban
from locore.circuits.chain import chain_of
from locore.kernel.automata.lift import lift_bytes
from locore_lab.harness import Case, Row, apart, measurement
from locore_lab.mask_engines import SIZES, WORDS, Vocabulary
from locore_lab.shared import least_seconds, timed

LENGTH, BATCH = 20, 32
CASES = ("substrings", "words", "random")


def phrases_of(case: str, words: Path) -> list[str]:
    """The list with variants, or as many random words."""
    if case == "random":
        rng = random.Random(0)
        letters = "abcdefghijklmnopqrstuvwxyz"
        return ["".join(rng.choice(letters) for _ in range(rng.randint(4, 12))) for _ in range(1000)]
    listed = [line.strip() for line in words.read_text().splitlines() if line.strip()]
    return sorted({v for w in listed for v in (w, " " + w, w.capitalize(), " " + w.capitalize())})


def plain_lift(constraint: locore.constraints.AutomatonLeaf, tokenizer: Tokenizer) -> float:
    """CPU seconds of a table of states × tokens, byte by byte for all states at once."""
    automaton = constraint.automaton()
    start = time.process_time()
    column = np.full(256, automaton.default)
    for symbol, number in automaton.column.items():
        column[symbol] = number
    table = np.empty((automaton.num_states, tokenizer.vocab_size), dtype=np.int32)
    for token, content in enumerate(tokenizer.token_bytes):
        states = np.arange(automaton.num_states)
        for byte in content or b"":
            states = automaton.table[states, column[byte]]
        table[:, token] = states
    return time.process_time() - start


def one(vocabulary: Path, case: str, words: Path) -> Row:
    """One case, in this process."""
    os.environ["LOCORE_CACHE"] = os.devnull  # nothing is read from a cache
    tokenizer = Vocabulary.load(vocabulary).tokenizer
    phrases = phrases_of(case, words)
    constraint = ban(phrases, words=case == "words")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    circuit, seconds = timed(lambda: locore.compile(constraint, tokenizer, LENGTH))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    _, lifted = timed(lambda: lift_bytes(constraint.automaton(), tokenizer.token_bytes))
    weights = 3 * torch.randn(BATCH, tokenizer.vocab_size, generator=torch.Generator().manual_seed(0))
    row = least_seconds({"mass_and_sample_cpu_s": lambda: circuit.sample_with_mass(lambda position: weights, seed=0)}, 3)
    row |= {
        "phrases": len(phrases),
        "states": len(circuit.reader.live[0]),
        "classes": circuit.num_classes,
        "nodes_a_position": sum(level.shape[1] for level in chain_of(circuit).blocks[-1].levels),
        "compile_cpu_s": seconds,
        "peak_mb": peak,
        "peak_before_mb": before,
    }
    if case == "substrings":
        row["plain_lift_over_lift"] = plain_lift(constraint, tokenizer) / lifted
    return row


@measurement(
    " | tokens | phrases | states | compile, s | peak memory, MB | before compiling | 32 masses and samples, s",
    "{case} | {vocabulary:,} | {phrases:,} | {states:,} | {compile_cpu_s:.2f} | {peak_mb:,.0f} | {peak_before_mb:,.0f} "
    "| {mass_and_sample_cpu_s:.2f}",
)
def run(
    vocabularies: Annotated[Path, "folder with bpe32000.json and bpe128000.json"],
    words: Annotated[Path, "phrases of the ban list"] = WORDS,
) -> Iterator[Case]:
    for size in SIZES:
        for case in CASES:
            work = partial(apart, one, vocabularies / f"bpe{size}.json", case, words)
            yield {"vocabulary": size, "case": case}, work
