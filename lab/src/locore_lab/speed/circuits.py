"""Circuit queries: edges a second, and PySDD's weighted model count beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

import locore
from locore.circuits import Circuit
from locore_lab.harness import Fields
from locore_lab.measuring import least_seconds
from locore_lab.speed.material import Clause, constraint_of, formula, vocabulary, words
from locore_lab.speed.plan import Case, Row, SpeedPlan

VOCABULARY = 2048
COLUMNS = (
    "constraint | edges | compile s | log-mass | sample | marginals | most probable",
    "{constraint} | {edges} | {compile seconds} | {edges a second[log-mass]:.1e} | {edges a second[sample]:.1e} "
    "| {edges a second[marginals]:.1e} | {edges a second[most probable]:.1e}",
)
ABOUT = """\
## Circuit queries

Bans of random words on the text of {n} tokens, 2,048 made-up tokens, {batch} distributions together in float32. Edge
evaluations (edges × distributions) for each CPU second; the size of the vocabulary is part of the work."""
PEER_COLUMNS = (  # dashes without the extra `sdd`
    "formula | PySDD edges | edges | PySDD ms | ms | ratio | difference",
    "{formula} | {pysdd edges} | {edges} | {PySDD ms} | {ms} | {ratio} | {apart:.0e}",
)
PEER_FIELDS: Fields = {
    "PySDD ms": lambda row: 1e3 * row["pysdd seconds"],
    "ms": lambda row: 1e3 * row["seconds"],
    "apart": lambda row: abs(row["difference"]),
}
PEER_ABOUT = """\
### Against PySDD

Random 3-CNFs, as one sentential decision diagram over a balanced vtree that PySDD compiled; edges as each side counts them.
PySDD: its weighted model count in log space, without setting the weights (one Python call for each literal). Here:
`log_mass` of {batch} weightings together, for each of them. Difference in nats."""


def cases(plan: SpeedPlan) -> Iterator[Case]:
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
