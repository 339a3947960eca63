"""Simple paths as moves: what the circuit lets through, what holds, and that samplers are right about the difference."""

from __future__ import annotations

import itertools
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from locore_lab.baselines import IteratedSIR, MarkovChain, ParticleGibbs

import locore
from locore.compilers.compile import compile_and_tell
from locore.compilers.stored import forget
from locore.constraints import Literal
from locore.kernel.errors import BudgetExceeded, InvalidConstraint, Unsatisfiable, ZeroWeights
from locore.kernel.tokenizer import Tokenizer
from locore.models.table import MarkovModel
from locore.samplers import BY_NAME
from locore.testing import check
from tests.effort import THOROUGH, examples, runs, some
from tests.paths import all_moves

UP, LEFT, RIGHT, DOWN, END = range(5)


def vocabulary(neighbours):
    """A token for each direction, and an end."""
    return Tokenizer.from_tokens([*"^<>v", None] if neighbours == 4 else [*"012345678"], eos_ids=[neighbours])


def padded(paths, length, end):
    return {(*path, *(end,) * (length - len(path))) for path in paths}


def accepted(circuit):
    """The sequences that a circuit lets through."""
    sequences = [()]
    for position in range(circuit.length):
        sequences = [
            (*y, token)
            for y in sequences
            for token in circuit.allowed(torch.tensor(y, dtype=torch.long)).nonzero()[:, 0].tolist()
            if position == len(y)
        ]
    return set(sequences)


@st.composite
def boards(draw):
    """Arguments of `simple_moves`, on grids with few cells, and a length."""
    neighbours = draw(st.sampled_from([4, 8]))
    rows, columns = draw(st.sampled_from([(1, 4), (2, 2), (2, 3), (3, 2), (3, 3)]))
    cells = draw(st.permutations(list(itertools.product(range(rows), range(columns)))))
    blocked = cells[2 : 2 + draw(st.integers(0, 2))]
    length = draw(st.integers(1, 6 if neighbours == 4 else 5))
    return (rows, columns, cells[0], cells[1], neighbours, draw(st.integers(0, 4)), blocked), length


def moves_of(arguments):
    try:
        return locore.simple_moves(*arguments)
    except InvalidConstraint as error:
        assert "blocked cells are in the way" in str(error)
        rows, columns, source, target, neighbours, _, blocked = arguments
        assert not all_moves(rows, columns, source, target, neighbours, blocked, rows * columns)
        return None


@settings(max_examples=examples(60))
@given(boards(), st.booleans())
def test_the_circuit_and_the_constraint(board, with_end):
    """The circuit has the walks that forget, the constraint the simple paths among them; exact circuits say so rightly."""
    arguments, length = board
    rows, columns, source, target, neighbours, memory, blocked = arguments
    leaf = moves_of(arguments)
    if leaf is None:
        return
    vocab = vocabulary(neighbours) if with_end else neighbours
    grid = (rows, columns, source, target, neighbours, blocked, length)
    walks, paths = all_moves(*grid, memory=memory), all_moves(*grid)
    walks, paths = (
        padded(some, length, neighbours) if with_end else {path for path in some if len(path) == length}
        for some in (walks, paths)
    )
    try:
        circuit = locore.compile(leaf, vocab, length, use_cache=False)
    except Unsatisfiable:
        assert not walks
        return
    assert accepted(circuit) == walks
    assert circuit.count() == len(walks)
    bound = leaf.bind(vocab if with_end else Tokenizer.integers(neighbours))
    tokenizer = vocab if with_end else None
    assert {y for y in walks if bound.evaluate(y, tokenizer)} == paths
    assert circuit.relaxed or walks == paths
    check(circuit, num_models=16)


@settings(max_examples=examples(40))
@given(boards())
def test_the_constraint_alone_on_all_sequences(board):
    arguments, length = board
    length = min(length, 4)
    leaf = moves_of(arguments)
    if leaf is None:
        return
    tokenizer = vocabulary(leaf.neighbours)
    rows, columns, source, target, neighbours, _, blocked = arguments
    paths = all_moves(rows, columns, source, target, neighbours, blocked, length)
    bound = leaf.bind(tokenizer)
    everything = itertools.product(range(tokenizer.vocab_size), repeat=length)
    assert {y for y in everything if bound.evaluate(y, tokenizer)} == padded(paths, length, neighbours)


def test_known_numbers_of_paths():
    """With memory enough the circuit counts the simple paths of grids exactly."""
    for side, number in [(2, 2), (3, 12), (4, 184)]:
        moves = locore.simple_moves(side, side, (0, 0), (side - 1, side - 1), neighbours=4, memory=side**2 - 2)
        circuit = locore.compile(moves, vocabulary(4), side**2 - 1, use_cache=False)
        assert circuit.count() == number
        assert locore.compile(moves, vocabulary(4), side**2, use_cache=False).count() == number
        assert not circuit.relaxed


def test_monotone_paths():
    """Of the shortest length all walks are simple: C(22, 11) on the grid of the paper."""
    moves = locore.simple_moves(12, 12, (0, 0), (11, 11), neighbours=4, memory=0)
    circuit = locore.compile(moves, vocabulary(4), 22)
    assert circuit.count() == math.comb(22, 11)


def test_more_memory_means_fewer_walks_and_more_states():
    sizes = []
    for memory in range(4):
        moves = locore.simple_moves(5, 5, (0, 0), (4, 4), memory=memory)
        circuit = locore.compile(moves, vocabulary(8), 10)
        sizes.append((-circuit.count(), circuit.num_nodes))
    assert sizes == sorted(sizes) and len(set(sizes)) == 4


# Three ways lead from the upper left to the lower right of 2 × 3 cells in 3 moves, one in 5, and walks can go in circles.
LENGTH = 7
MOVES = locore.simple_moves(2, 3, (0, 0), (1, 2), neighbours=4, memory=0)


def model():
    initial = [0.02, 0.02, 0.6, 0.34, 0.02]
    transition = [
        [0.05, 0.05, 0.3, 0.55, 0.05],
        [0.05, 0.05, 0.6, 0.25, 0.05],
        [0.05, 0.3, 0.2, 0.25, 0.2],
        [0.25, 0.05, 0.3, 0.05, 0.35],
        [0.2] * 5,
    ]
    return MarkovModel(initial, transition, tokenizer=vocabulary(4))


def truth(constraint, length=LENGTH):
    """{sequence: probability} over all sequences that satisfy the constraint."""
    lm = model()
    bound = constraint.at(length).bind(lm.tokenizer)
    sequences = [(*y, *(END,) * (length - len(y))) for n in range(length + 1) for y in itertools.product(range(4), repeat=n)]
    good = [y for y in sequences if bound.evaluate(y, lm.tokenizer)]
    return dict(zip(good, lm.score(torch.tensor(good)).exp().tolist(), strict=True))


@pytest.fixture(scope="module")
def law():
    return truth(MOVES)


def sampled(name, seed, num=12, constraint=MOVES, **options):
    """The law of the model as it is, in which a text pays for its end."""
    asked = {"num_particles": num, "sampler": name, "seed": seed, "stop": "eos", **options}
    return locore.generate(model(), [], constraint, LENGTH, **asked)


def test_the_problem_tells_exact_and_relaxed_apart(law):
    circuit = locore.compile(MOVES, model(), LENGTH)
    relaxed = sum(model().score(torch.tensor(sorted(accepted(circuit)))).exp().tolist())
    assert circuit.relaxed
    assert len(law) == 4
    assert relaxed > 1.3 * sum(law.values())


CHAINS = {"isir": IteratedSIR(), "particle-gibbs": ParticleGibbs(), "mcmc": MarkovChain()}  # right in the limit only
RUNS, NUM = runs(150), 12


@pytest.mark.parametrize("name", some((name for name in BY_NAME if name not in (*CHAINS, "asap")), 8))
def test_weights_are_proper_for_the_constraint_itself(name, law):
    """Law 3 for what `generate` returns: E[mean w 1[y]] = p(y) 1[y ⊨ α], z-tests with a false alarm of 1e-6 a sampler."""
    totals = torch.zeros(RUNS, len(law) + 1, dtype=torch.float64)
    place = {y: number for number, y in enumerate(law)}
    for run in range(RUNS):
        try:
            particles = sampled(name, run, NUM)
        except ZeroWeights:
            continue
        weights = particles.log_weights.exp() / len(particles)
        for y, weight in zip(particles.tokens.tolist(), weights.tolist(), strict=True):
            totals[run, place[tuple(y)]] += weight
        assert math.isclose(float(weights.sum()), math.exp(particles.log_evidence))
    totals[:, -1] = totals[:, :-1].sum(-1)
    exact = torch.tensor([*law.values(), sum(law.values())], dtype=torch.float64)
    error = (totals.std(0) / math.sqrt(RUNS)).maximum(1e-9 * exact)
    # What never came up has no spread; it is as far off as its expected number of appearances allows.
    z = torch.where((totals > 0).any(0), (totals.mean(0) - exact) / error, -(exact * RUNS * NUM).sqrt())
    assert float(z.abs().max()) < 5.3, (name, z, totals.mean(0), exact)  # 5 numbers, Bonferroni, normal tails


@pytest.mark.parametrize("name", some(BY_NAME, 8))
def test_what_is_certain_is_true_of_the_constraint_itself(name, law):
    total = math.log(sum(law.values()))
    refused = returned = 0
    seeds = range(12) if THOROUGH else range(1, 12, 3)
    for seed in seeds:
        try:
            particles = sampled(name, seed, num=5 + 10 * seed)
        except ZeroWeights:
            continue
        low, high = particles.log_evidence_bounds
        assert low - 1e-9 <= total <= high + 1e-9
        assert all(tuple(y) in law for y in particles.tokens.tolist())
        returned += 1
        refused += particles.info["refused"]["allowed by the relaxed circuit, but not by the constraint"] > 0
    assert returned > len(seeds) // 2 - 1
    assert refused, "the test sees nothing where nothing is refused"


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_chains_converge_to_the_constraint_itself(name, law):
    particles = sampled(CHAINS[name], 0, num=1500)
    found = dict.fromkeys(law, 0.0)
    for y, weight in zip(particles.tokens.tolist(), particles.weights.tolist(), strict=True):
        found[tuple(y)] += weight
    total = sum(law.values())
    assert (
        sum(abs(found[y] - law[y] / total) for y in law) / 2 < 0.15
    )  # many standard errors of 1,500 draws over 4 cells, correlated as they are


def test_enumeration_is_exact_also_where_few_are_kept(law):
    """What the relaxation lets through is refused before anything is thinned."""
    whole = sampled("exact", 0, num=10_000)
    assert whole.info["evidence"] == "exact"
    assert whole.log_evidence == pytest.approx(math.log(sum(law.values())))
    assert whole.log_evidence_bounds == pytest.approx((whole.log_evidence,) * 2)
    few = sampled("exact", 0, num=4)
    assert len(few) == 4 and few.info["evidence"] == "exact"
    assert few.log_evidence == pytest.approx(whole.log_evidence)


def test_the_report_counts_the_refused():
    particles = sampled("rejection", 0, num=200)
    share = particles.info["refused"]["allowed by the relaxed circuit, but not by the constraint"]
    assert 0.1 < share < 0.5
    assert "allowed by the relaxed circuit, but not by the constraint (refused)" in particles.report(full=True)


def test_other_conditions_come_on_top():
    for sampler in ("twisted", "exact"):
        particles = sampled(sampler, 0, num=200, canonical="only", ending="complete")
        assert {tuple(y) for y in particles.tokens.tolist()} <= set(truth(MOVES))


def test_the_most_probable_path_is_simple_though_the_circuit_lets_more_through():
    best = max(truth(MOVES).values())
    found = sampled(None, 0, num=32, temperature=0)
    assert found.record.mode.is_proven and found.record.mode.log_found == pytest.approx(math.log(best))


def test_nothing_left_is_an_error():
    """Four walks of 7 moves end on the last one; none of them is simple."""
    with pytest.raises(ZeroWeights, match=r"relaxation.*memory"):
        sampled("exact", 0, num=1000, min_new_tokens=7)


def test_together_with_other_constraints():
    third_is_up = Literal(2, frozenset({UP}))
    for constraint in (MOVES & ~third_is_up, MOVES & third_is_up, MOVES | third_is_up)[: 3 if THOROUGH else 1]:
        circuit = locore.compile(constraint, model(), LENGTH)
        assert circuit.relaxed
        inside = accepted(circuit)
        good = set(truth(constraint))
        assert good < inside
        particles = sampled("exact", 0, num=30_000, constraint=constraint)
        assert {tuple(y) for y in particles.tokens.tolist()} == good


def test_negations_of_a_relaxation_are_refused():
    other = Literal(0, frozenset({RIGHT}))
    for wrong in (~MOVES, other & ~MOVES, MOVES ^ other, MOVES >> other, ~(other & MOVES)):
        with pytest.raises(InvalidConstraint, match=r"negation.*memory=5"):
            locore.compile(wrong, model(), LENGTH)
    assert locore.compile(~(other & ~MOVES), model(), LENGTH).relaxed
    enough = locore.simple_moves(2, 3, (0, 0), (1, 2), neighbours=4, memory=5)
    circuit = locore.compile(~enough, model(), LENGTH)
    assert not circuit.relaxed
    assert circuit.count() + len(truth(MOVES)) == sum(4**n for n in range(LENGTH + 1))


def test_a_relaxed_circuit_stays_one_in_the_cache(monkeypatch):
    monkeypatch.setattr("locore.compilers.stored.WORTH_SECONDS", 0.0)
    moves = locore.simple_moves(10, 10, (0, 0), (9, 9), memory=2)
    origins = []
    for turn in range(3):
        told = compile_and_tell(moves, vocabulary(8), 20)
        assert told.circuit.relaxed and told.circuit.to("cpu").relaxed
        origins.append(told.origin)
        if turn == 1:
            forget()
    assert origins == ["compiled", "memory", "disk"]


def test_a_memory_that_is_too_large_is_refused():
    moves = locore.simple_moves(12, 12, (0, 0), (11, 11), memory=8)
    with pytest.raises(BudgetExceeded, match=r"simple_moves.*states.*smaller memory"):
        locore.compile(moves, vocabulary(8), 30, limits=locore.Limits(states=5000))


def test_too_few_moves_say_how_many_are_needed():
    moves = locore.simple_moves(12, 12, (0, 0), (11, 11), neighbours=4)
    with pytest.raises(Unsatisfiable, match="at least 22"):
        locore.compile(moves, vocabulary(4), 21)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 0}, "rows"),
        ({"columns": "3"}, "columns"),
        ({"source": (0, 3)}, "source .*outside a grid of 3 rows and 3 columns"),
        ({"target": (-1, 0)}, "target .*outside"),
        ({"target": 5}, "pair"),
        ({"target": (0, 0)}, r"both \(0, 0\)"),
        ({"neighbours": 6}, "4 or 8"),
        ({"memory": -1}, "at least 0"),
        ({"memory": 1.5}, "integer"),
        ({"blocked": [(0, 0)]}, r"source \(0, 0\) .*blocked"),
        ({"blocked": [(2, 2)]}, r"target \(2, 2\) .*blocked"),
        ({"blocked": [(0, 9)]}, "blocked cell .*outside"),
        ({"blocked": [(0, 1), (1, 0), (1, 1)]}, "in the way"),
        ({"tokens": [1, 2, 3]}, "8 different ids"),
        ({"tokens": [0, 1, 2, 3, 4, 5, 6, 6]}, "8 different ids"),
        ({"tokens": [0, 1, 2, 3, 4, 5, 6, -7]}, "start at 0"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    with pytest.raises(InvalidConstraint, match=message):
        locore.simple_moves(**{"rows": 3, "columns": 3, "source": (0, 0), "target": (2, 2)} | changes)


def test_moves_that_end_the_text_are_refused():
    moves = locore.simple_moves(2, 2, (0, 0), (1, 1), neighbours=4, tokens=[1, 2, 3, 4])
    with pytest.raises(InvalidConstraint, match=r"token 4 is a move .*ends the text"):
        locore.compile(moves, vocabulary(4), 3)


@settings(max_examples=examples(40))
@given(boards())
def test_json(board):
    leaf = moves_of(board[0])
    if leaf is not None:
        assert locore.from_json(json.loads(json.dumps(leaf.to_json()))) == leaf
        renamed = locore.simple_moves(*board[0], tokens=range(3, 3 + leaf.neighbours))
        assert locore.from_json(json.loads(json.dumps(renamed.to_json()))) == renamed


def test_the_order_of_directions_is_by_row_and_column():
    moves = locore.simple_moves(3, 3, (1, 1), (0, 0))
    steps = [moves.cells([token])[1] for token in range(8)]
    assert steps == sorted(steps) and len(set(steps)) == 8
    assert moves.cells([4, 6, 8, 0]) == [(1, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (">>v", "a path of 3 moves"),
        (">^", "move 1 leaves the grid at (0, 1)"),
        ("><", "move 1 comes back to (0, 0)"),
        (">>v<", "move 3 goes on from the target"),
        (">", "the path ends at (0, 1), not at the target (1, 2)"),
    ],
)
def test_explanations(text, reason):
    explanation = locore.explain(MOVES, text, vocabulary(4))
    assert explanation.reason == reason
    assert explanation.holds == (text == ">>v")


def test_blocked_cells_and_other_tokens_are_explained():
    tokenizer = Tokenizer.from_tokens([*"^<>vx", None], eos_ids=[5])
    blocked = locore.simple_moves(2, 3, (0, 0), (1, 2), neighbours=4, blocked=[(0, 1)])
    assert locore.explain(blocked, ">", tokenizer).reason == "move 0 enters the blocked cell (0, 1)"
    assert locore.explain(MOVES, ">x", tokenizer).reason == "token 1 is 4, which is no move"
