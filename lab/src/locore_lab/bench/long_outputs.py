"""Outputs of 256, 1,024 and 4,096 tokens: compiling, memory, and what a row and token costs outside the model.

JSON, a regular expression, and a literal with a ban, over the vocabulary of a model's tokenizer (SmolLM2: 49,152 tokens). The
model itself is made up, so that it costs nothing to speak of (`steps.py`); its time is taken off. No text may end before the
last token, so that all rows go on. The table is made of 2,000 positions of its own text. Each cell runs in a process of its
own, so that memory is its own: what `generate` adds to a process that has compiled the constraint and made the model.
"""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import locore
from locore import Constraint, Tokenizer, ban, json_schema, regex, token
from locore.circuits import Circuit
from locore.circuits.chain import chain_of
from locore.models.loading import tokenizer_parts
from locore.samplers import SequentialMonteCarlo, Twisted, WithoutReplacement
from locore_lab.bench.steps import Peaked, table_of
from locore_lab.harness import Case, Row, apart, measurement
from locore_lab.shared import peak_bytes

LENGTHS, PARTICLES = (256, 1_024, 4_096), 32
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
        *(part for block in chain_of(circuit).blocks for part in (block.leaves, block.outputs, *block.levels)),
    ]
    if circuit.reader is not None:
        tensors += circuit.reader.tables
    return sum(tensor.nbytes for tensor in {tensor.data_ptr(): tensor for tensor in tensors}.values())


def cell(of: str, name: str, length: int, sampler: str) -> Row:
    """One constraint, length and sampler, in this process, over the tokenizer of a model."""
    os.environ["LOCORE_COMPILE_CACHE_BYTES"] = "0"
    tokenizer = Tokenizer.from_huggingface(*tokenizer_parts(of))
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
        "compile_s": compiled,
        "circuit_bytes": stored_bytes(circuit),
        "lm_tokens": tokens,
        "outside_ms_a_row_and_token": 1e3 * outside / tokens,
        "peak_bytes": peak,
    }


def _megabytes(field: str) -> Callable[[Row], float]:
    return lambda row: row[field] / 1e6


@measurement(
    "constraint | tokens | sampler | compile s | circuit, MB | LM tokens | ms a row and token | peak, MB",
    "{constraint} | {length:,} | {sampler} | {compile_s:.2f} | {circuit:.2f} | {lm_tokens:,} "
    "| {outside_ms_a_row_and_token:.2f} | {peak:,.0f}",
    quick={"tokenizer": "tiny", "length": [32]},
    fields={"circuit": _megabytes("circuit_bytes"), "peak": _megabytes("peak_bytes")},
)
def run(tokenizer: Annotated[str, "a model whose tokenizer it is"] = "smollm2", length: list[int] = LENGTHS) -> Iterator[Case]:
    for name in CONSTRAINTS:
        for tokens in length:
            for sampler in SAMPLERS:
                key = {"constraint": name, "length": tokens, "sampler": sampler}
                yield key, partial(apart, cell, tokenizer, name, tokens, sampler)
