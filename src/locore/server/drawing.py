"""The circuit of a comparison: its size, and a small one as a trellis with what passes along its arcs."""

from __future__ import annotations

from locore.circuits import Circuit
from locore.circuits.draw import Speller, Trellis, trellis_of
from locore.errors import BudgetExceeded
from locore.evidence import Particles
from locore.server.compute import Message
from locore.tokenizer import Tokenizer

MOST_ARCS, MOST_STATES, MOST_POSITIONS = 160, 14, 16  # of a drawing that can still be read


def described(circuit: Circuit, tokenizer: Tokenizer, ours: Particles, masked: Particles | None) -> Message:
    """The size of the circuit, and the circuit itself if it is small."""
    size = {"nodes": circuit.num_nodes, "edges": circuit.num_edges, "classes": circuit.num_classes}
    found = {**size, "vocab_size": circuit.vocab_size, "positions": circuit.length, "relaxed": circuit.relaxed}
    try:
        small = circuit.reader is not None and circuit.length <= MOST_POSITIONS
        trellis = trellis_of(circuit, MOST_ARCS) if small else None
    except BudgetExceeded:
        trellis = None
    if trellis is None or max(map(len, trellis.columns)) > MOST_STATES:
        return {**found, "trellis": None}
    return {**found, "trellis": _drawn(circuit, trellis, Speller(circuit, tokenizer), ours, masked)}


def _drawn(circuit: Circuit, trellis: Trellis, speller: Speller, ours: Particles, masked: Particles | None) -> Message:
    """Columns of states, and arcs with the share of each side that passes along them."""
    flows = {"locore": flow(circuit, ours), "masking": {} if masked is None else flow(circuit, masked.unweighted())}
    place = [{state: index for index, state in enumerate(column)} for column in trellis.columns]
    arcs = [
        {
            "position": position,
            "source": place[position][arc.source],
            "target": place[position + 1][arc.target],
            "tokens": speller.tokens(arc.classes),
            **{name: side.get((position, arc.source, arc.target), 0.0) for name, side in flows.items()},
        }
        for position, arcs in enumerate(trellis.arcs)
        for arc in arcs
    ]
    return {"columns": [len(column) for column in trellis.columns], "arcs": arcs}


def flow(circuit: Circuit, particles: Particles) -> dict[tuple[int, int, int], float]:
    """The share of the weight that passes from a state to another: by position, source and target."""
    reader = circuit.reader
    assert reader is not None
    shares: dict[tuple[int, int, int], float] = {}
    states, weights = reader.initial(len(particles)), particles.weights.tolist()
    for position in range(circuit.length):
        after = reader.step(position, states, particles.tokens[:, position])
        for source, target, weight in zip(states.tolist(), after.tolist(), weights, strict=True):
            key = (position, source, target)
            shares[key] = shares.get(key, 0.0) + weight
        states = after
    return shares
