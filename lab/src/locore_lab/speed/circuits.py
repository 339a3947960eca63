"""Circuit queries: edges a second, PySDD's weighted model count beside them, and masks of many prefixes in one call."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

import locore
from locore.circuits import Circuit
from locore.constraints import Constraint, from_json
from locore_lab.shared import least_seconds
from locore_lab.speed.plan import Case, Row, SpeedPlan, Table

LETTERS = "abcdefghijklmnopqrstuvwxyz"
Clause = list[tuple[int, int]]  # (variable, value), one of which must hold


@cache
def words(number: int) -> tuple[str, ...]:
    """So many different words of four to nine letters; the first of many are those of few."""
    generator = random.Random(0)
    found: dict[str, None] = {}
    while len(found) < number:
        found["".join(generator.choices(LETTERS, k=generator.randint(4, 9)))] = None
    return tuple(found)


@cache
def vocabulary(size: int) -> locore.Tokenizer:
    """So many tokens: all bytes, then random strings of two to eight letters, half of them after a space; the last one ends."""
    generator = random.Random(1)
    tokens: dict[bytes, None] = {bytes([byte]): None for byte in range(256)}
    while len(tokens) < size - 1:
        text = "".join(generator.choices(LETTERS, k=generator.randint(2, 8)))
        tokens[(text if generator.random() < 0.5 else " " + text).encode()] = None
    return locore.Tokenizer.from_tokens([*tokens, None], eos_ids=[size - 1])


def formula(variables: int, clauses: int, span: int) -> list[Clause]:
    """A random 3-CNF; the three variables of a clause lie within a span."""
    generator = random.Random(1)
    found = []
    for _ in range(clauses):
        first = generator.randrange(variables - span + 1)
        chosen = generator.sample(range(first, first + span), 3)
        found.append([(variable, generator.randrange(2)) for variable in chosen])
    return found


def constraint_of(clauses: list[Clause]) -> Constraint:
    """The formula as a constraint on tokens 0 and 1."""
    one_of = [
        {"type": "or", "of": [{"type": "token", "position": variable, "in": [value]} for variable, value in clause]}
        for clause in clauses
    ]
    return from_json({"type": "and", "of": one_of})


VOCABULARY = 2048
CIRCUITS = Table(
    """\
## Circuit queries

Bans of random words on the text of {n} tokens, 2,048 made-up tokens, {batch} distributions together in float32. Edge
evaluations (edges × distributions) for each CPU second; the size of the vocabulary is part of the work.""",
    (
        "constraint | edges | compile s | log-mass | sample | marginals | most probable",
        "{constraint} | {edges} | {compile seconds} | {edges a second[log-mass]:.1e} | {edges a second[sample]:.1e} "
        "| {edges a second[marginals]:.1e} | {edges a second[most probable]:.1e}",
    ),
)
PYSDD = Table(
    """\
### Against PySDD

Random 3-CNFs, as one sentential decision diagram over a balanced vtree that PySDD compiled; edges as each side counts them.
PySDD: its weighted model count in log space, without setting the weights (one Python call for each literal). Here:
`log_mass` of {batch} weightings together, for each of them. Difference in nats.""",
    (  # dashes without the extra `sdd`
        "formula | PySDD edges | edges | PySDD ms | ms | ratio | difference",
        "{formula} | {pysdd edges} | {edges} | {PySDD ms} | {ms} | {ratio} | {apart:.0e}",
    ),
    {
        "PySDD ms": lambda row: 1e3 * row["pysdd seconds"],
        "ms": lambda row: 1e3 * row["seconds"],
        "apart": lambda row: abs(row["difference"]),
    },
)


def circuits_cases(plan: SpeedPlan) -> Iterator[Case]:
    """Queries by number of words, then PySDD."""
    for number in plan.words:
        yield ("circuits", number), partial(_queries, plan, number)
    for shape in plan.formulas:
        yield ("pysdd", *shape), partial(_against_pysdd, plan, shape)


def _queries(plan: SpeedPlan, number: int) -> list[Row]:
    tokenizer = vocabulary(VOCABULARY)
    constraint = locore.ban(words(number))
    made: dict[str, Circuit] = {}

    def compiling() -> None:
        made["circuit"] = locore.compile(constraint, tokenizer, plan.n, use_cache=False)

    compile_seconds = least_seconds({"compile": compiling}, 1)["compile"]
    circuit = made["circuit"]
    log_probs = distributions(circuit, plan.batch)
    works: dict[str, Callable[[], Any]] = {
        "log-mass": lambda: circuit.log_mass(log_probs),
        "sample": lambda: circuit.sample(log_probs, seed=0),
        "marginals": lambda: circuit.marginals(log_probs),
        "most probable": lambda: circuit.most_probable(log_probs),
    }
    works["log-mass"]()
    seconds = least_seconds(works, plan.repeats)
    work = circuit.num_edges * plan.batch
    row: Row = {"part": "circuits", "constraint": f"ban of {number:,} words", "edges": circuit.num_edges, "batch": plan.batch}
    row |= {"compile seconds": compile_seconds, "seconds": seconds}
    return [row | {"edges a second": {name: work / taken for name, taken in seconds.items()}}]


def distributions(circuit: Circuit, batch: int) -> Tensor:
    """Float[batch, length, vocab], random."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, circuit.length, circuit.vocab_size, generator=generator).log_softmax(-1)


def _against_pysdd(plan: SpeedPlan, shape: tuple[int, int, int]) -> list[Row]:
    """A row without numbers where the extra `sdd` is not installed."""
    variables, clauses, _ = shape
    name = f"{variables} variables, {clauses} clauses"
    try:
        counter = _Counter(formula(*shape), variables)
    except ImportError:
        return [{"part": "pysdd", "formula": name}]
    circuit = locore.compile(constraint_of(formula(*shape)), 2, variables, vtree=_balanced(0, variables), use_cache=False)
    log_probs = distributions(circuit, plan.batch).double()
    counter.weigh(log_probs[0])
    works: dict[str, Callable[[], Any]] = {"ours": lambda: circuit.log_mass(log_probs), "pysdd": counter.count}
    difference = float(circuit.log_mass(log_probs)[0]) - counter.count()
    seconds = least_seconds(works, 3 * plan.repeats)
    ours = seconds["ours"] / plan.batch
    row: Row = {"part": "pysdd", "formula": name, "pysdd edges": counter.edges, "edges": circuit.num_edges}
    row |= {"pysdd seconds": seconds["pysdd"], "seconds": ours, "ratio": seconds["pysdd"] / ours, "difference": difference}
    return [row]


class _Counter:
    """PySDD's weighted model count of a formula."""

    def __init__(self, clauses: list[Clause], variables: int) -> None:
        from pysdd.sdd import SddManager, Vtree

        self._manager = SddManager.from_vtree(Vtree(variables, list(range(1, variables + 1)), "balanced"))
        node = self._manager.true()
        for clause in clauses:
            either = self._manager.false()
            for variable, value in clause:
                either = either | self._manager.literal(variable + 1 if value else -variable - 1)
            node = node & either
        self.edges = int(node.size())
        self._counter = node.wmc(log_mode=True)

    def weigh(self, log_probs: Tensor) -> None:
        """Set the weights Float[variables, 2]."""
        for variable, (no, yes) in enumerate(log_probs.tolist(), 1):
            self._counter.set_literal_weight(self._manager.literal(variable), yes)
            self._counter.set_literal_weight(self._manager.literal(-variable), no)

    def count(self) -> float:
        """Log mass."""
        return float(self._counter.propagate())


def _balanced(first: int, last: int) -> Any:
    """A balanced vtree over positions first … last − 1."""
    if last - first == 1:
        return first
    middle = (first + last) // 2
    return (_balanced(first, middle), _balanced(middle, last))


BANNED_WORDS = 400
MASKS = Table(
    """\
## Masks

`circuit.allowed` of different prefixes in one call, against one call for each: which tokens may come next so that the text can
still be completed. The tokens of the prefixes are read again by both.""",
    (
        "prefixes | vocabulary | constraint | read tokens | one call ms | one at a time ms | ratio",
        "{prefixes} | {vocabulary} | {constraint} | {read tokens} | {together} | {apart} | {ratio}",
    ),
    {"together": lambda row: 1e3 * row["seconds"], "apart": lambda row: 1e3 * row["seconds apart"]},
)


def masks_cases(plan: SpeedPlan) -> Iterator[Case]:
    """After few and after many tokens."""
    for read in (1, plan.n // 2, plan.n - 1):
        yield ("masks", read), partial(_masks, plan, read)


def _masks(plan: SpeedPlan, read: int) -> list[Row]:
    tokenizer = vocabulary(plan.vocabulary)
    circuit = locore.compile(locore.ban(words(BANNED_WORDS)), tokenizer, plan.n)
    weights = torch.zeros(plan.batch, plan.n, plan.vocabulary)
    prefixes = circuit.sample(weights, seed=0)[0][:, :read]
    del weights
    works: dict[str, Callable[[], Any]] = {
        "together": lambda: circuit.allowed(prefixes),
        "apart": lambda: [circuit.allowed(prefix) for prefix in prefixes],
    }
    works["together"]()
    seconds = least_seconds(works, 3 * plan.repeats)
    row: Row = {
        "part": "masks",
        "prefixes": plan.batch,
        "vocabulary": plan.vocabulary,
        "constraint": f"ban of {BANNED_WORDS} words",
    }
    row |= {"read tokens": read, "seconds": seconds["together"], "seconds apart": seconds["apart"]}
    return [row | {"ratio": seconds["apart"] / seconds["together"]}]
