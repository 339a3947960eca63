"""Outputs of 256, 1,024 and 4,096 tokens: compiling, memory, and what a row and token costs outside the model.

JSON, a regular expression, and a literal with a ban, over the vocabulary of a model's tokenizer (SmolLM2: 49,152 tokens). The
model itself is made up, so that it costs nothing to speak of (`steps.py`); its time is taken off. No text may end before the
last token, so that all rows go on. The table is made of 2,000 positions of its own text. Each cell runs in a process of its
own, so that memory is its own: what `generate` adds to a process that has compiled the constraint and made the model.

    python -m locore_lab.micro.long_outputs [--tokenizer smollm2] [--json lab/results/long_outputs.json]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["LOCORE_COMPILE_CACHE_BYTES"] = "0"

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

import locore
from locore import Constraint, Tokenizer, ban, json_schema, regex, token
from locore.circuits import Circuit
from locore.models.loading import tokenizer_parts
from locore.samplers import SequentialMonteCarlo, Twisted, WithoutReplacement
from locore.samplers.twist.ngram import NGramCounts, NGramTable
from locore_lab.micro.machine import machine
from locore_lab.micro.steps import TABLE_POSITIONS, Peaked
from locore_lab.speed.measuring import peak_bytes

LENGTHS, PARTICLES = (256, 1_024, 4_096), 32
GOAL_MS, GOAL_LENGTH = 0.3, 1_024
RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
CONSTRAINTS: dict[str, Constraint] = {
    "JSON, records": json_schema({"type": "array", "items": RECORD, "minItems": 1}, whitespace="compact", escapes="any"),
    "regex, sentences": regex(r"([A-Z][a-z]+( [a-z]+){2,12}[.!?] ?)+"),
    "first token, no ban": token(0, 500) & ban(["awful", "hate"]),
}
SAMPLERS = ("smc", "swor", "twisted")


def stored_bytes(circuit: Circuit) -> int:
    """Of all tensors of a circuit, each once."""
    tensors = [
        circuit.token_class,
        *(part for block in circuit.blocks for part in (block.leaves, block.outputs, *block.levels)),
    ]
    if circuit.reader is not None:
        tensors += circuit.reader.tables
    return sum(tensor.nbytes for tensor in {tensor.data_ptr(): tensor for tensor in tensors}.values())


def table_of(model: Peaked) -> NGramTable:
    """What `locore prepare` would make, of fewer positions."""
    counts = NGramCounts(model.vocab_size, model.tokenizer.eos_ids)
    while counts.positions < TABLE_POSITIONS:
        drafts = model.sample(8, 50, counts.positions, keep_log_probs=True)
        counts.add_sequences(drafts.tokens, drafts.log_probs)
    return counts.table()


def cell(tokenizer: Tokenizer, name: str, length: int, sampler: str) -> dict:
    """One constraint, length and sampler, in this process."""
    constraint, model = CONSTRAINTS[name], Peaked(tokenizer, kinds=128)
    constraint.at(length)
    start = time.process_time()
    circuit = locore.compile(constraint, tokenizer, length, min_length=length)
    compiled = time.process_time() - start
    chosen = {
        "smc": lambda: SequentialMonteCarlo(),
        "swor": lambda: WithoutReplacement(),
        "twisted": lambda: Twisted(table_of(model)),
    }[sampler]()
    locore.generate(model, "", constraint, 64, num_particles=2, sampler=chosen, seed=1)  # what is made once
    found: list[locore.Particles] = []
    model.cpu_seconds, start = 0.0, time.process_time()
    peak = peak_bytes(
        lambda: found.append(locore.generate(model, "", constraint, length, length, PARTICLES, sampler=chosen, seed=0))
    )
    outside = time.process_time() - start - model.cpu_seconds
    tokens = found[0].info["lm_tokens"]
    return {
        "constraint": name,
        "length": length,
        "sampler": sampler,
        "compile_s": compiled,
        "circuit_bytes": stored_bytes(circuit),
        "lm_tokens": tokens,
        "outside_ms_a_row_and_token": 1e3 * outside / tokens,
        "peak_bytes": peak,
    }


def show(rows: list[dict]) -> None:
    """As a table."""
    print("| constraint | tokens | sampler | compile s | circuit, MB | LM tokens | ms a row and token | peak, MB |")
    print("|---|---:|---|---:|---:|---:|---:|---:|")
    for row in rows:
        peak = "?" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e6:,.0f}"
        print(
            f"| {row['constraint']} | {row['length']:,} | {row['sampler']} | {row['compile_s']:.2f} "
            f"| {row['circuit_bytes'] / 1e6:.2f} | {row['lm_tokens']:,} | {row['outside_ms_a_row_and_token']:.2f} | {peak} |"
        )
    worst = max(row["outside_ms_a_row_and_token"] for row in rows if row["length"] == GOAL_LENGTH)
    print(f"\nat {GOAL_LENGTH:,} tokens at most {worst:.2f} ms a row and token, goal {GOAL_MS}")


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", default="smollm2", help="a model whose tokenizer it is")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--cell", nargs=3, metavar=("CONSTRAINT", "LENGTH", "SAMPLER"), help="only this, printed as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.cell:
        name, length, sampler = options.cell
        print(json.dumps(cell(Tokenizer.from_huggingface(*tokenizer_parts(options.tokenizer)), name, int(length), sampler)))
        return
    rows = []
    for name in CONSTRAINTS:
        for length in options.lengths:
            for sampler in SAMPLERS:
                command = [sys.executable, __file__, "--tokenizer", options.tokenizer, "--cell", name, str(length), sampler]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                rows.append(json.loads(done.stdout.splitlines()[-1]))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    show(rows)
    if options.json:
        record = {"machine": machine(), "goals": {"ms": GOAL_MS, "length": GOAL_LENGTH}, "particles": PARTICLES, "rows": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
