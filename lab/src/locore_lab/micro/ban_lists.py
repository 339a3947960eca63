"""Banning a thousand phrases over large vocabularies: compile time, memory, and queries for 32 distributions.

Each case runs in a process of its own, so that peak memory is its own. The baseline of the same run is the plain lift: the next
state for each state and token as one table, made by walking all tokens through the byte automaton, which is where the work of a
dense compiler begins.

    python -m locore_lab.micro.vocabularies --text ../shared/data/text -o DIR
    python -m locore_lab.micro.ban_lists --vocabularies DIR --words ../shared/data/detox/ldnoobw_en.txt
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["LOCORE_CACHE"] = os.devnull  # nothing is read from a cache

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer as RustTokenizer
from transformers import PreTrainedTokenizerFast

import locore
from locore import Tokenizer, ban
from locore.automata.lift import lift_bytes
from locore_lab.micro.machine import machine

LENGTH, BATCH = 20, 32
GOALS = {32_000: {"seconds": 1.0, "peak_mb": 1000}, 128_000: {"seconds": 4.0, "peak_mb": 1000}}
CASES = ("substrings", "words", "random")


def phrases_of(case: str, words: Path) -> list[str]:
    """The list with variants, or as many random words."""
    if case == "random":
        rng = random.Random(0)
        letters = "abcdefghijklmnopqrstuvwxyz"
        return ["".join(rng.choice(letters) for _ in range(rng.randint(4, 12))) for _ in range(1000)]
    listed = [line.strip() for line in words.read_text().splitlines() if line.strip()]
    return sorted({v for w in listed for v in (w, " " + w, w.capitalize(), " " + w.capitalize())})


def plain_lift(constraint, tokenizer: Tokenizer) -> float:
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


def one(vocabulary: Path, case: str, words: Path, baseline: bool) -> dict:
    """One case, in this process."""
    torch.set_num_threads(1)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=RustTokenizer.from_file(str(vocabulary)), eos_token="<|end|>")
    tokenizer = Tokenizer.from_huggingface(wrapped)
    phrases = phrases_of(case, words)
    constraint = ban(phrases, words=case == "words")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    start = time.process_time()
    circuit = locore.compile(constraint, tokenizer, LENGTH)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    start = time.process_time()
    lift_bytes(constraint.automaton(), tokenizer.token_bytes)
    lifted = time.process_time() - start
    weights = 3 * torch.randn(BATCH, tokenizer.vocab_size, generator=torch.Generator().manual_seed(0))
    queries = []
    for _ in range(3):
        start = time.process_time()
        circuit.sample_with_mass(lambda position: weights, seed=0)
        queries.append(time.process_time() - start)
    row = {
        "vocabulary": tokenizer.vocab_size,
        "case": case,
        "phrases": len(phrases),
        "states": len(circuit.reader.live[0]),
        "classes": circuit.num_classes,
        "nodes_a_position": sum(level.shape[1] for level in circuit.blocks[-1].levels),
        "compile_cpu_s": seconds,
        "peak_mb": peak,
        "peak_before_mb": before,
        "mass_and_sample_cpu_s": min(queries),
    }
    if baseline:
        row["plain_lift_over_lift"] = plain_lift(constraint, tokenizer) / lifted
    return row


def main() -> None:
    """Run all cases, or one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabularies", type=Path, required=True)
    parser.add_argument("--words", type=Path, required=True)
    parser.add_argument("--case", nargs=2, metavar=("SIZE", "CASE"), help="only this one, in this process")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.case:
        size, case = int(options.case[0]), options.case[1]
        row = one(options.vocabularies / f"bpe{size}.json", case, options.words, case == "substrings")
        print(json.dumps(row))
        return
    rows = []
    for size in GOALS:
        for case in CASES:
            command = [sys.executable, __file__, *sys.argv[1:], "--case", str(size), case]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print({k: round(v, 2) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
    if options.json:
        record = {"machine": machine(), "goals": {str(k): v for k, v in GOALS.items()}, "rows": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
