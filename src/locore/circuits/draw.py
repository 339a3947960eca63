"""Drawings of a circuit: its gates, with the tokens of each leaf spelled out (paper, Figure 2); and its trellis, columns of
states that are joined by sets of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from locore.circuits.builder import classes_of_range
from locore.circuits.chain import Chain, chain_of
from locore.circuits.levels import FALSE, TRUE, Block
from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.nodes import MAX_NODES
from locore.kernel.circuits.reading import DEAD
from locore.kernel.errors import BudgetExceeded, InvalidArgument
from locore.kernel.lists import listed
from locore.kernel.plugins import picture_of
from locore.kernel.tokenizer import Tokenizer
from locore.picture import Box, Picture

SHOWN_NODES, MOST_SLOTS = 120, 10_000  # nodes in a notebook, and slots whose nodes are counted for that


@dataclass(frozen=True)
class Gate:
    """One node of a drawing.

    Attributes:
        kind: "or", "and", "leaf", or "true" and "false", which are never drawn.
        children: what it joins, as indices of the drawing's gates.
        position: of a leaf, "the token at this position …".
        classes: of a leaf, "… is in one of these token classes".
    """

    kind: str
    children: tuple[int, ...] = ()
    position: int = -1
    classes: frozenset[int] = frozenset()


@picture_of.register
def drawn(circuit: Circuit, *options: Any) -> Picture | None:
    """As `Circuit.dot` says with these options; without any, for notebooks: None where it is not small enough."""
    if options:
        return picture_of_gates(chain_of(circuit), *options)
    reader = circuit.reader if circuit.written is None else None
    entries = 0 if reader is None else sum(table.numel() for table in reader.tables)
    if entries > MOST_SLOTS**2 or (circuit.written is None and (reader is None or not reader.pictured)):
        return None
    try:
        slots = sum(block.num_slots for block in set(chain_of(circuit).blocks))
        return None if max(circuit.length, slots) > MOST_SLOTS else picture_of_gates(chain_of(circuit), None, SHOWN_NODES)
    except BudgetExceeded:
        return None


def picture_of_gates(circuit: Chain, tokenizer: Tokenizer | None = None, max_nodes: int = MAX_NODES) -> Picture:
    """The gates of a circuit.

    Chains of binary Or gates are drawn as one gate, and the ranges that make up a set of tokens as one leaf, so a drawing has
    fewer nodes than `circuit.num_nodes`.

    Args:
        circuit: what to draw.
        tokenizer: spells the tokens; without it, or if it has no text, leaves name token ids.
        max_nodes: BudgetExceeded above this many nodes of the circuit: nobody reads larger drawings.
    """
    if tokenizer is not None and tokenizer.vocab_size != circuit.vocab_size:
        raise InvalidArgument(
            f"the circuit speaks about {circuit.vocab_size} tokens, the tokenizer has {tokenizer.vocab_size}; pass the one "
            "that the constraint was compiled for."
        )
    gates, root = gates_of(circuit, max_nodes)
    speller = Speller(circuit.token_class, tokenizer)
    boxes = [Box(speller.leaf(gate) if gate.kind == "leaf" else gate.kind.upper(), gate.kind, gate.children) for gate in gates]
    return Picture(tuple(boxes), root)


def gates_of(circuit: Chain, max_nodes: int = MAX_NODES) -> tuple[list[Gate], int]:
    """The gates of a drawing, children before parents, and the index of the root; some gates may be unused."""
    nodes = circuit.size()[0]
    if nodes > max_nodes:
        raise BudgetExceeded(
            f"the circuit has {nodes:,} nodes, too many for a drawing (at most {max_nodes}); draw it for "
            "fewer tokens or a simpler constraint (or, in Python, raise max_nodes)."
        )
    drawing = _Gates()
    handed = [TRUE if flag else FALSE for flag in circuit.final.tolist()]
    for block, positions in circuit.upwards():
        handed = drawing.add(block, positions, handed, circuit)
    return drawing.gates, handed[0]


class _Gates:
    """Collects gates; equal gates are kept once, constants vanish."""

    def __init__(self) -> None:
        self.gates = [Gate("false"), Gate("true")]  # at the indices FALSE and TRUE
        self._index: dict[Gate, int] = {}

    def add(self, block: Block, positions: tuple[int, ...], handed: list[int], circuit: Chain) -> list[int]:
        """The gates of a block's outputs, given those of its inputs."""
        slots = [FALSE, TRUE]
        for position, heap in block.leaves.tolist():
            classes = frozenset(classes_of_range(heap, circuit.num_classes))
            slots.append(self._put(Gate("leaf", (), positions[position], classes)) if classes else FALSE)
        slots.extend(handed)
        for level in block.levels:
            pairs = [((slots[a], slots[b]), (slots[c], slots[d])) for a, b, c, d in level.T.tolist()]
            slots.extend([self._either(self._both(*first), self._both(*second)) for first, second in pairs])
        return [slots[slot] for slot in block.outputs.tolist()]

    def _put(self, gate: Gate) -> int:
        if gate not in self._index:
            self._index[gate] = len(self.gates)
            self.gates.append(gate)
        return self._index[gate]

    def _both(self, first: int, second: int) -> int:
        if FALSE in (first, second):
            return FALSE
        if TRUE in (first, second):
            return first if second == TRUE else second
        return self._put(Gate("and", (first, second)))

    def _either(self, first: int, second: int) -> int:
        """An Or of two gates, Or gates among them opened, leaves that differ only in their tokens joined."""
        if FALSE in (first, second):
            return first if second == FALSE else second
        groups: dict[tuple[int, ...], list[int]] = {}
        for side in (first, second):
            gate = self.gates[side]
            for child in gate.children if gate.kind == "or" else (side,):
                groups.setdefault(self._group(child), []).append(child)
        joined = tuple(self._joined(group) for group in groups.values())
        return joined[0] if len(joined) == 1 else self._put(Gate("or", joined))

    def _group(self, index: int) -> tuple[int, ...]:
        """Gates of one group are leaves at one position, or such leaves joined with one and the same rest."""
        gate = self.gates[index]
        if gate.kind == "leaf":
            return (gate.position,)
        if gate.kind == "and" and self.gates[gate.children[0]].kind == "leaf":
            return (self.gates[gate.children[0]].position, gate.children[1])
        return (index, -1, -1)

    def _joined(self, group: list[int]) -> int:
        if len(group) == 1:
            return group[0]
        first = self.gates[group[0]]
        leaves = group if first.kind == "leaf" else [self.gates[index].children[0] for index in group]
        classes = frozenset().union(*(self.gates[leaf].classes for leaf in leaves))
        leaf = self._put(Gate("leaf", (), self.gates[leaves[0]].position, classes))
        return leaf if first.kind == "leaf" else self._put(Gate("and", (leaf, first.children[1])))


class Speller:
    """Names sets of tokens.

    Args:
        token_class: Long[vocab]; sets consist of classes.
        tokenizer: spells tokens; without it, or if it has no text, they are named by their ids.
    """

    def __init__(self, token_class: Tensor, tokenizer: Tokenizer | None) -> None:
        self._members: list[list[int]] = [[] for _ in range(int(token_class.max()) + 1)]
        for token, number in enumerate(token_class.tolist()):
            self._members[number].append(token)
        self._tokenizer = tokenizer if tokenizer is not None and tokenizer.has_text else None
        self._ends = () if tokenizer is None else tokenizer.eos_ids

    def leaf(self, gate: Gate) -> str:
        """Such as `y[0]: " hate", " hates"`."""
        return f"y[{gate.position}]: {self.tokens(gate.classes)}"

    def tokens(self, classes: frozenset[int]) -> str:
        """Such as `" hate", " hates"`; the smaller one of a set and its complement is spelled."""
        tokens = self._tokens(classes)
        rest = self._tokens(set(range(len(self._members))) - classes)
        if not rest:
            return "any token"
        return f"any but {self._listed(rest)}" if len(rest) < len(tokens) else self._listed(tokens)

    def _tokens(self, classes: Iterable[int]) -> list[int]:
        """Those that spell something first: they are what a reader looks for."""
        tokens = [token for number in classes for token in self._members[number]]
        bare = set() if self._tokenizer is None else {i for i in tokens if not self._tokenizer.token_bytes[i]}
        return sorted(tokens, key=lambda token: (token in bare, token))

    def _listed(self, tokens: list[int]) -> str:
        return listed(tokens, self.token)

    def token(self, token: int) -> str:
        """Such as `" hate"`, `end of text` or `token 7`."""
        if token in self._ends:
            return "end of text"
        content = None if self._tokenizer is None else self._tokenizer.token_bytes[token]
        return f"token {token}" if content is None else json.dumps(content.decode(errors="replace"), ensure_ascii=False)


MAX_ARCS = 400


@dataclass(frozen=True)
class Arc:
    """From a state to one at the next position, by a token of these classes."""

    source: int
    target: int
    classes: frozenset[int]


@dataclass(frozen=True)
class Trellis:
    """The left-to-right reading of a circuit: a column of states for each position, joined by sets of tokens.

    It holds what can be reached and still be completed.

    Attributes:
        columns: for each position 0..n, the numbers of its states, in the order in which they are first reached; those of the
            last column satisfy the constraint.
        arcs: for each position 0..n-1, how its token leads on; one arc for each pair of states.
    """

    columns: tuple[tuple[int, ...], ...]
    arcs: tuple[tuple[Arc, ...], ...]


def trellis_of(circuit: Circuit, max_arcs: int = MAX_ARCS) -> Trellis:
    """The trellis of a circuit, for a drawing; its paths, with a token chosen on each arc, are the models of the circuit.

    Args:
        circuit: what to draw; of a relaxed one, the drawing is that of the relaxation.
        max_arcs: BudgetExceeded above this many arcs, found before all of them are made.

    Raises:
        InvalidArgument: the circuit has no left-to-right reading.
        BudgetExceeded: it is too large.
    """
    reader = circuit.reader
    if reader is None:
        raise InvalidArgument(
            "this circuit cannot be read from left to right, so it has no trellis; draw its gates with circuit.dot()."
        )
    columns: list[tuple[int, ...]] = [(reader.start,)]
    arcs: list[tuple[Arc, ...]] = []
    total = 0
    for position in range(circuit.length):
        rows, live = reader.rows[position], reader.live[position + 1].tolist()
        classes_of: dict[tuple[int, int], set[int]] = {}
        for source in columns[-1]:
            for number, target in enumerate(rows[source].tolist()):
                if target != DEAD and live[target]:
                    classes_of.setdefault((source, target), set()).add(number)
            if total + len(classes_of) > max_arcs:
                raise BudgetExceeded(f"the circuit has more than {max_arcs} arcs, too many for a drawing of them.")
        total += len(classes_of)
        columns.append(tuple(dict.fromkeys(target for _, target in classes_of)))
        arcs.append(tuple(Arc(*pair, frozenset(classes)) for pair, classes in classes_of.items()))
    return Trellis(tuple(columns), tuple(arcs))
