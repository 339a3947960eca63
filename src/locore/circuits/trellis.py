"""The trellis of a circuit, for a drawing: columns of states, joined by sets of tokens."""

from __future__ import annotations

from dataclasses import dataclass

from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.left_to_right import DEAD
from locore.kernel.errors import BudgetExceeded, InvalidArgument

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
