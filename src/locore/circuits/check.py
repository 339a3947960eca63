"""Is a circuit what it claims to be: smooth, decomposable and deterministic?"""

from __future__ import annotations

import torch

from locore.circuits.chain import FALSE, FIRST_LEAF, Block
from locore.circuits.circuit import Circuit
from locore.circuits.upward import satisfiable
from locore.errors import LocoreError
from locore.numerics import NEG_INF

Scope = int  # a set of positions as a bit mask


def check(circuit: Circuit, num_models: int = 256, seed: int = 0) -> None:
    """Raise LocoreError unless the circuit is smooth, decomposable and deterministic.

    Smoothness and decomposability are read off the scopes of all nodes. Determinism is tested on `num_models` models drawn
    from the circuit: at a single model a deterministic circuit evaluates to exactly 1, and models that are counted twice are
    drawn twice as often, so an overlap that holds a share f of all models is found with probability above 1 − (1 −
    f)^num_models.
    """
    _check_scopes(circuit)
    if circuit.num_nodes:
        _check_determinism(circuit, num_models, seed)


def _check_scopes(circuit: Circuit) -> None:
    """Every And joins disjoint scopes, every Or equal ones, and the root speaks about all positions."""
    live_slots = satisfiable(circuit)
    handed: list[Scope] = [0] * len(circuit.final)
    for (block, positions), live in zip(circuit.upwards(), reversed(live_slots), strict=True):
        scopes = _block_scopes(block, positions, live.tolist(), handed)
        handed = [scopes[slot] for slot in block.outputs.tolist()]
    if bool(live_slots[0][circuit.blocks[0].outputs[0]]) and handed[0] != (1 << circuit.length) - 1:
        raise LocoreError(f"the root speaks about positions {handed[0]:b}, not about all {circuit.length}")


def _block_scopes(block: Block, positions: tuple[int, ...], live: list[bool], handed: list[Scope]) -> list[Scope]:
    scopes: list[Scope] = [0] * block.num_slots
    for number, (position, _) in enumerate(block.leaves.tolist()):
        scopes[FIRST_LEAF + number] = 1 << positions[position]
    scopes[block.first_input : block.first_node] = handed
    for here, level in block.slots_and_levels:
        for node, (a, b, c, d) in enumerate(level.T.tolist(), here.start):
            branches = []
            for prime, sub in ((a, b), (c, d)):
                if not (live[prime] and live[sub]) or FALSE in (prime, sub):
                    continue
                if scopes[prime] & scopes[sub]:
                    raise LocoreError(f"slots {prime} and {sub} are joined but share positions: not decomposable")
                branches.append(scopes[prime] | scopes[sub])
            if len(branches) == 2 and branches[0] != branches[1]:
                raise LocoreError(f"slot {node} joins branches over different positions: not smooth")
            scopes[node] = branches[0] if branches else 0
    return scopes


def _check_determinism(circuit: Circuit, num_models: int, seed: int) -> None:
    uniform = torch.zeros(num_models, circuit.length, circuit.vocab_size, dtype=torch.float64, device=circuit.device)
    models, _ = circuit.sample(uniform, seed=seed)
    single = torch.full_like(uniform, NEG_INF).scatter_(-1, models[..., None], 0.0)
    values = circuit.log_mass(single)
    if bool((values != 0.0).any()):
        worst = float(values.max().exp())
        raise LocoreError(f"a model is counted {worst:g} times: the circuit is not deterministic")
