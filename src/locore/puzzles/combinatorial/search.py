"""Top-down search: a conjunction of combinatorial leaves becomes a circuit of all its solutions.

Propagate; split what is left into components that do not influence each other (And); decide the position with the fewest
values (Or); keep the node of every component that was solved (Huang and Darwiche, "DPLL with a trace", 2005; Sang et al.,
"Combining component caching and clause learning", 2004). Every branch decides the same positions, so the circuit is smooth; two
branches differ in a position, so it is deterministic.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

import torch

from locore.circuits import Builder, Chain, Circuit
from locore.circuits.conditioned import conditioned
from locore.circuits.levels import FALSE, TRUE
from locore.kernel.compilers.problem import CompilerLeaf, Problem, classes_of, unsatisfiable
from locore.kernel.limits import check_progress, check_states
from locore.puzzles.combinatorial.network import Component, Network, Part
from locore.puzzles.combinatorial.propagators import ENTAILED, Padding, PropagatorState, bits

WHAT = "the circuit of all solutions"
REMEDY = "give more of the positions (more givens, or literals), or constrain the rest further"
Node = int
SearchNode = Generator[Component, Node, Node]  # asks for the circuit nodes of components, and returns its own


def compile_by_search(problem: Problem, leaf: CompilerLeaf, parts: Iterable[Part]) -> Circuit:
    """The circuit of a conjunction.

    Args:
        leaf: the conjunction.
        parts: its parts.

    Raises:
        Unsatisfiable: it has no solution.
        BudgetExceeded: more components, nodes, seconds or memory than the limits allow.
    """
    classes = classes_of(problem, leaf)
    network = Network(parts, classes, problem.length)
    _add_ends(network, problem)
    builder = Builder(problem.length, classes.num_classes)
    start = network.start()
    root = FALSE if start is None else _TopDownSearch(network, builder).run(*start)
    if root == FALSE:
        raise unsatisfiable(problem.length)
    chain = Chain.of(builder.finish(root), torch.from_numpy(classes.token_class), classes.num_classes, problem.length)
    return Circuit(conditioned(chain), chain, structured=False)


def _add_ends(network: Network, problem: Problem) -> None:
    """Only padding follows an end, and no end comes before `min_length`."""
    eos_ids = problem.tokenizer.eos_ids
    if not eos_ids:
        return
    ends, padding = network.mask(eos_ids), network.mask(eos_ids[:1])
    for position in range(problem.length):
        if position < problem.min_length:
            network.domains[position] &= ~ends
        elif position + 1 < problem.length:
            network.watch(Padding(position, ends, padding))


class _TopDownSearch:
    """One search; components are solved on a stack of our own, however deep it gets."""

    def __init__(self, network: Network, builder: Builder) -> None:
        self._network = network
        self._builder = builder
        self._solved: dict[Component, Node] = {}
        self._leaves: dict[tuple[int, int], Node] = {}

    def run(self, domains: list[int], states: list[PropagatorState]) -> Node:
        """The root."""
        stack = [self._joined(domains, states, list(range(self._network.length)))]
        value: Node | None = None
        while stack:
            try:
                wanted = next(stack[-1]) if value is None else stack[-1].send(value)
            except StopIteration as finished:
                stack.pop()
                value = finished.value
                continue
            check_progress(WHAT, REMEDY)
            check_states(len(self._solved) + 1, WHAT, REMEDY)
            stack.append(self._decided(wanted))
            value = None
        assert value is not None
        return value

    def _joined(self, domains: list[int], states: list[PropagatorState], positions: list[int]) -> SearchNode:
        """Decided positions and components, all of which must hold."""
        factors = []
        undecided = []
        for position in positions:
            domain = domains[position]
            if domain & (domain - 1):
                undecided.append(position)
            else:
                factors.append(self._leaf(position, domain))
        # Small components first: if one has no solution, the others need not be solved.
        for component in sorted(self._network.components(domains, states, undecided), key=lambda c: len(c[0])):
            members, values, joining = component
            if len(members) == 1 and not joining:
                factors.append(self._leaf(members[0], values[0]))
                continue
            node = self._solved.get(component)
            if node is None:
                node = yield component
            if node == FALSE:
                return FALSE
            factors.append(node)
        return self._all(factors)

    def _decided(self, component: Component) -> SearchNode:
        """A component, by the values of one of its positions."""
        members, values, joining = component
        network = self._network
        domains, states = [0] * network.length, [ENTAILED] * network.num_propagators
        for position, domain in zip(members, values, strict=True):
            domains[position] = domain
        for index, state in joining:
            states[index] = state
        chosen = min(members, key=lambda position: domains[position].bit_count())
        rest = [position for position in members if position != chosen]
        classes: dict[Node, int] = {}  # of the chosen position, by what is left then
        for mask in network.alternatives(chosen, domains, states):
            narrower, after = domains.copy(), states.copy()
            if network.assign(narrower, after, chosen, mask):
                node = yield from self._joined(narrower, after, rest)
                classes[node] = classes.get(node, 0) | mask
        elements = [(self._leaf(chosen, mask), node) for node, mask in classes.items() if node != FALSE]
        result = self._solved[component] = self._builder.either(elements)
        return result

    def _leaf(self, position: int, mask: int) -> Node:
        key = position, mask
        if key not in self._leaves:
            self._leaves[key] = self._builder.leaf(position, [bit.bit_length() - 1 for bit in bits(mask)])
        return self._leaves[key]

    def _all(self, factors: list[Node]) -> Node:
        """Their conjunction, as a balanced tree."""
        while len(factors) > 1:
            pairs = [factors[i : i + 2] for i in range(0, len(factors), 2)]
            factors = [pair[0] if len(pair) == 1 else self._builder.both(*pair) for pair in pairs]
        return factors[0] if factors else TRUE
