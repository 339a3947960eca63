"""Laws of sampling without replacement, of the n-gram table and of the twist. False alarm: 1e-6 a test."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from locore.compilers import compile
from locore.constraints import Count, Literal, contains
from locore.kernel.samplers import selection
from locore.kernel.samplers.rounds import abreast
from locore.kernel.samplers.selection import select
from locore.kernel.tokenizer import Tokenizer
from locore.models import Counted, MarkovModel, TableModel
from locore.samplers import Twisted, WithoutReplacement
from locore.samplers.ahead import DEFENCE, LEAST_DEFENCE
from locore.samplers.swor import STRETCHED, Size, _History
from locore.samplers.twist import lookahead
from locore.samplers.twist.lookahead import look_ahead
from locore.samplers.twist.ngram import NGramCounts
from locore.samplers.without_replacement import Trial
from locore.testing import enumerate_posterior, proper_weighting
from tests.effort import THOROUGH, examples, runs, some
from tests.samplers.one_round import one_round

LENGTH = 4


@pytest.mark.parametrize("others", [[-100.0] * 5, [-1000.0] * 600, [-50.0, -120.0, -130.0]])
def test_selection_among_items_that_vanish_beside_the_largest(others):
    """A model that is nearly certain: in f32 the rest weighs nothing at all. Found on the Warcraft model."""
    log_weights = torch.tensor([0.0, *others])
    for uniform in (0.0, 0.5, 0.999):
        chosen, new = select(log_weights, 3, uniform)
        assert 0 in chosen.tolist() and len(set(chosen.tolist())) == len(chosen) <= 3
        assert torch.isfinite(new).all()
        assert torch.logsumexp(new, 0) == pytest.approx(float(torch.logsumexp(log_weights.double(), 0)), abs=1e-12)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.floats(-70, -25), min_size=4, max_size=40), st.integers(2, 4), st.floats(0, 0.999))
def test_what_vanishes_beside_the_largest_keeps_its_own_total(others, num, uniform):
    """Their sum is lost in the total's rounding, and they may be all that leads anywhere: a twist can be wrong by as much."""
    log_weights = torch.tensor([0.0, *others], dtype=torch.float64)
    chosen, new = select(log_weights, num, uniform)
    assert 0 in chosen.tolist() and len(chosen) == num
    kept = torch.logsumexp(new[chosen > 0], 0)
    assert float(kept) == pytest.approx(float(torch.logsumexp(log_weights[1:], 0)), abs=1e-9)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.floats(-30, 0), min_size=1, max_size=40), st.integers(1, 12), st.floats(0, 0.999))
def test_selection_keeps_the_total_and_repeats_nothing(logs, num, uniform):
    logs = torch.tensor(logs, dtype=torch.float64)
    chosen, kept = select(logs, num, uniform)
    assert len(chosen) == min(num, len(logs)) == len(set(chosen.tolist()))
    assert torch.logsumexp(kept, 0).item() == pytest.approx(torch.logsumexp(logs, 0).item(), abs=1e-9)
    assert bool((kept >= logs[chosen] - 1e-9).all())


def test_selection_is_unbiased_for_every_item():
    """Integrated over the only uniform number, each item keeps its weight."""
    logs = 2 * torch.randn(30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    total = torch.zeros(30, dtype=torch.float64)
    grid = 5000 if THOROUGH else 300
    for k in range(grid):
        chosen, kept = select(logs, 7, (k + 0.5) / grid)
        total[chosen] += kept.exp()
    # An item is chosen on an interval of uniforms; a grid misjudges its two ends, by the threshold at most.
    threshold = float(logs.exp().sum()) / 7
    torch.testing.assert_close(total / grid, logs.exp(), rtol=0, atol=2 * threshold / grid)


def alike(rows, tokens, seed):
    """Rows that weigh the same and go on alike, as prefixes do that were drawn before."""
    p = torch.rand(tokens, generator=torch.Generator().manual_seed(seed)).pow(3)
    padded = selection.padded_rows(rows, tokens, torch.device("cpu"))
    padded[:, :tokens] = (p / p.sum()).log()
    return padded, p / p.sum()


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 60), st.sampled_from([3, 40, 700]), st.integers(0, 99), st.floats(0.001, 0.999))
def test_rows_alike_go_on_with_every_token_as_often_as_they_should(rows, tokens, seed, uniform):
    """Had all rows the same order, a point would hit the same place of each, and all would go on with one token."""
    matrix, p = alike(rows, tokens, seed)
    chosen = selection.select_in_place(matrix.clone(), rows, uniform).chosen
    assert len(chosen) == len(set(chosen.tolist())) == rows
    token = chosen % matrix.shape[1]
    counts = torch.bincount(token, minlength=tokens).double()
    assert float((counts - rows * p).abs().max()) < 3 + math.log2(rows)


def test_selection_from_rows_is_unbiased_for_every_item():
    matrix, _ = alike(5, 700, 1)
    total, grid = torch.zeros(matrix.numel(), dtype=torch.float64), 4000 if THOROUGH else 300
    for k in range(grid):
        found = selection.select_in_place(matrix.clone(), 4, (k + 0.5) / grid)
        total[found.chosen] += (matrix.flatten()[found.chosen] + found.log_raise).exp()
    torch.testing.assert_close(total / grid, matrix.flatten().exp().double(), rtol=0, atol=2 * (5 / 4) / grid + 1e-5)


def test_impossible_items_are_never_chosen():
    chosen, _ = select(torch.tensor([float("-inf"), 0.0, float("-inf"), -800.0]).double(), 3, 0.5)
    assert chosen.tolist() == [1, 3]


masses = st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=40).map(
    lambda w: torch.tensor(w).double().sort(descending=True).values / sum(w)
)


def kept(log_weights, most, fine, spares=True):
    """How many of so many are worth keeping."""
    return len(selection.select_in_place(log_weights.clone(), most, 0.4, fine, spares).chosen)


@settings(max_examples=examples(100), deadline=None)
@given(masses, st.floats(1e-4, 1.0), st.integers(1, 50))
def test_as_many_are_kept_as_thinning_to_a_threshold_keeps(w, threshold, most):
    log_weights = torch.nn.functional.pad(w.log(), (0, 512 - len(w)), value=-math.inf)[None] + 3
    mean = float((w / threshold).clamp_max(1).sum())
    assert kept(log_weights, most, threshold) == min(most, math.ceil(mean - 1e-4))
    assert kept(log_weights, most, threshold, False) == (len(w) if len(w) <= most else min(most, math.ceil(mean - 1e-4)))


@settings(max_examples=examples(100), deadline=None)
@given(masses, st.integers(1, 30))
def test_a_prefix_more_takes_the_square_of_the_threshold_off_the_variance(w, num):
    """Σ w (c − w) over those below the threshold c, were they chosen independently."""
    if num + 1 >= len(w):
        return

    def threshold(of):
        k = next(k for k in range(of) if w[k] < w[k:].sum() / (of - k))
        return float(w[k:].sum() / (of - k))

    less, more = threshold(num), threshold(num + 1)
    variances = [float((w * (c - w))[w < c].sum()) for c in (less, more)]
    assert more**2 - 1e-12 <= variances[0] - variances[1] <= less**2 + 1e-12
    assert float((w / more).clamp_max(1).sum()) == pytest.approx(num + 1)


def test_what_weighs_nothing_is_not_kept_and_what_weighs_alike_is_not_thinned():
    assert kept(torch.full((2, 512), -math.inf), 10, 0.1) == 0
    assert kept(torch.zeros(1, 1024), 2000, 1 / 50) == 50
    assert kept(torch.zeros(1, 1024), 2000, 1e-4) == kept(torch.zeros(1, 1024), 2000, 0.0) == 1024


@pytest.mark.parametrize("seed", range(3))
def test_a_text_that_is_as_good_as_fixed_is_hardly_read_and_what_is_open_gets_the_rest(seed):
    """Twelve tokens follow each other with .9992, then four are drawn from eight; an even share of eight prefixes."""
    chain, letters = 12, list("abcdefgh")
    rows = torch.zeros(chain + 8, chain + 8).double()
    rows[:, chain:] = 1 / 8
    for token in range(chain - 1):
        rows[token, chain:], rows[token, token + 1] = 0.0001, 0.9992
    start = torch.zeros(chain + 8).double()
    start[chain:], start[0] = 0.0001, 0.9992
    tokenizer = Tokenizer.from_tokens([*map(str, range(chain)), *letters])
    model = MarkovModel(start.tolist(), rows.tolist(), tokenizer=tokenizer)
    circuit, sizes = compile(contains("a") | ~contains("a"), model, chain + 4), []
    watch = (lambda prefixes, _: sizes.append(len(prefixes)),)
    one_round(model, circuit.reader, Size(8), torch.Generator().manual_seed(seed), watch=watch)
    assert max(sizes[1:12]) <= 3 and sizes[-1] == STRETCHED * 8


def problem(eos, concentration=0.7):
    model = TableModel.random(4, LENGTH, seed=3, eos=eos, concentration=concentration)
    alpha = Count(tuple(range(LENGTH)), frozenset({1}), 1, 2) & ~Literal(2, frozenset({0}))
    return model, compile(alpha, model, LENGTH)


def table_of(model, num=20):
    counts = NGramCounts(model.vocab_size, model.tokenizer.eos_ids)
    counts.draft(model, num, LENGTH, torch.Generator().manual_seed(0))
    return counts.table()


@pytest.mark.parametrize("eos", some([True, False]))
@pytest.mark.parametrize("kind", some(["table", "plain", "learned"]))
def test_the_weights_are_proper_whatever_the_twist(kind, eos):
    # A text that all but always is kept needs many runs before it is missing in some of them.
    concentration, prefixes, number = (0.7, 8, 1200) if THOROUGH else (20.0, 4, 80)
    model, circuit = problem(eos, concentration)
    sampler = {
        "plain": WithoutReplacement(blocks=2),
        "table": Twisted(table_of(model), blocks=2),
        "learned": Twisted(None, blocks=1),
    }[kind]
    result = proper_weighting(sampler, model, circuit, prefixes, number, seed=8)
    assert result.holds(1e-6), (result.z, result.estimates, result.truth)


@pytest.mark.parametrize("eos", [False, True])
def test_with_room_for_everything_the_answer_is_exact(eos):
    model, circuit = problem(eos)
    truth = enumerate_posterior(model, circuit)
    draws = WithoutReplacement(blocks=1)(model, circuit, 4**LENGTH, None, torch.Generator())
    assert len(draws.tokens) == len(truth.tokens) == len({tuple(y) for y in draws.tokens.tolist()})
    found = float(torch.logsumexp(draws.log_weights, 0)) - math.log(len(draws.tokens))
    assert found == pytest.approx(truth.log_evidence)
    torch.testing.assert_close(draws.token_scores.sum(-1), model.score(draws.tokens))


def test_the_budget_is_kept():
    model, circuit = problem(False)
    for sampler in (WithoutReplacement(blocks=1), WithoutReplacement(), Twisted(blocks=1), Twisted(table_of(model))):
        counted = Counted(model)
        sampler(counted, circuit, 32, 60, torch.Generator().manual_seed(0))
        assert counted.lm_tokens <= 60


def test_texts_that_nearly_all_have_ended_cost_little():
    """Many more tokens may be written than there are in the mean: the few texts that go on get few prefixes, without bias."""
    length, ends, width = (40, 0.3, 12) if THOROUGH else (12, 0.5, 12)
    chain = torch.rand(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    chain = torch.cat([torch.full((6, 1), ends).double(), (1 - ends) * chain[:, 1:] / chain[:, 1:].sum(1, keepdim=True)], 1)
    model = MarkovModel(chain[1], chain, eos_ids=[0])
    circuit = compile(Count(tuple(range(length)), frozenset({1}), 0, 0), model, length)
    going, truth = chain[1, 2:], float(chain[1, 0])
    for _ in range(length - 1):
        truth, going = truth + float(going @ chain[2:, 0]), going @ chain[2:, 2:]
    truth += float(going.sum())
    estimates, number = [], runs(200)
    for seed in range(number):
        counted = Counted(model)
        draws = WithoutReplacement(blocks=1)(counted, circuit, width, None, torch.Generator().manual_seed(seed))
        estimates.append(math.exp(float(torch.logsumexp(draws.log_weights, 0))) / len(draws.tokens))
        assert counted.lm_tokens <= width * (length - 1) / 2
    found = torch.tensor(estimates, dtype=torch.float64)
    assert abs(float(found.mean()) - truth) < 5 * float(found.std()) / math.sqrt(number)  # 6e-7, were it normal


def test_blocks_report_their_evidence():
    model, circuit = problem(True)
    draws = WithoutReplacement(blocks=4)(model, circuit, 12, None, torch.Generator().manual_seed(0))
    evidence = torch.tensor(draws.blocks.log_evidence, dtype=torch.float64)
    pooled = float(torch.logsumexp(draws.log_weights, 0)) - math.log(len(draws.tokens))
    assert len(evidence) == 4
    assert pooled == pytest.approx(float(torch.logsumexp(evidence, 0)) - math.log(4))


def chain_and_its_twist():
    """A Markov chain, a circuit, and β from rows recorded from the chain itself, with no smoothing to speak of."""
    generator = torch.Generator().manual_seed(0)
    transition = torch.softmax(2 * torch.randn(4, 4, generator=generator), -1).double()
    model = MarkovModel(torch.full((4,), 0.25).double(), transition)
    circuit = compile(Count(tuple(range(6)), frozenset({2}), 2, 3), model, 6)
    counts = NGramCounts(4, ())
    last = torch.arange(4).repeat(400)  # every context many times, so that the back-off has no mass
    counts.add(torch.full_like(last, -1), last, transition.log()[last])
    return model, circuit, counts.table(), look_ahead(counts.table(), circuit.reader)


def upside_down(twist):
    """It holds for likely what is not, up to the end."""
    *before, last = twist.log_beta
    return replace(twist, log_beta=(*(-2 * values for values in before), last))


def test_the_look_ahead_of_a_markov_chain_is_its_future():
    """β is the exact probability of the constraint."""
    model, circuit, table, twist = chain_and_its_twist()
    for prefix in ([1], [2, 2], [0, 2, 1], [3, 2, 2, 0]):
        states = circuit.reader.read(torch.tensor([prefix]))
        found = twist.log_beta[len(prefix)][table.single[prefix[-1]], states[0]]
        rest = torch.cartesian_prod(*[torch.arange(4)] * (6 - len(prefix))).reshape(-1, 6 - len(prefix))
        whole = torch.cat([torch.tensor([prefix]).expand(len(rest), -1), rest], 1)
        holds = circuit.accepts(whole)
        scores = model.token_scores(whole)[:, len(prefix) :].sum(-1)
        truth = torch.logsumexp(scores[holds], 0)
        assert found.item() == pytest.approx(truth.item(), abs=0.02)


def test_the_look_ahead_reaches_further_than_single_precision():
    """Of 40 tokens 25 are to be a rare one: of states at the same position some are 1e50 times as good as others."""
    law, length = torch.tensor([1 - 1e-6, 1e-6]).double(), 40
    circuit = compile(Count(tuple(range(length)), frozenset({1}), 25, length), Tokenizer.integers(2), length)
    counts = NGramCounts(2, ())
    last = torch.arange(2).repeat(4000)
    counts.add(torch.full_like(last, -1), last, law.log().expand(len(last), 2))
    twist = look_ahead(counts.table(), circuit.reader)
    found = twist.of_states(0, circuit.reader.initial(1), *torch.full((2, 1), -1))
    assert float(found) == pytest.approx(float(circuit.log_mass(law.log().expand(1, length, 2))), abs=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_the_look_ahead_of_what_prefixes_lead_to_is_that_of_all_states(monkeypatch, seed):
    """A pass over all states, as for long horizons, says the same of them; of the others nothing is asked."""
    model = MarkovModel(*(TableModel.random(5, 2, seed=seed)._tables))
    circuit = compile(Count(tuple(range(8)), frozenset({1, 2}), 3, 5) & ~Literal(2, frozenset({4})), model, 8)
    reader, table = circuit.reader, table_of(model, 30)
    near = look_ahead(table, reader)
    look_ahead.cache_clear()
    lookahead._asked.cache_clear()
    monkeypatch.setattr(lookahead, "SHORT", 0)
    far = look_ahead(table, reader)
    lookahead._asked.cache_clear()
    prefixes = model.sample(200, 8, seed=seed).tokens
    for position in range(9):
        states = reader.read(prefixes[:, :position])
        states = torch.unique(states[states >= 0])
        torch.testing.assert_close(near.log_beta[position][:, states], far.log_beta[position][:, states], atol=1e-4, rtol=0)


def test_a_trial_tells_a_twist_that_foretells_from_one_that_does_not():
    """Where every prefix is kept, exact forecasts do not change, and those of a twist upside down change more than none."""
    model, circuit, _, twist = chain_and_its_twist()
    trial = Trial()
    abreast([trial.walk(model, circuit.reader, 4**6, torch.Generator())])
    right, wrong = trial.steps(twist), trial.steps(upside_down(twist))
    assert right.foreseen < 0.05 < 0.5 < right.plain == wrong.plain < wrong.foreseen


def shares_and_error(monkeypatch, model, circuit, twist, width, seeds):
    """The defence of every selection of each round, and the root mean square error of log Ẑ in nats."""
    real, shares = _History.defence, []

    def noted(history):
        shares[-1].append(real(history))
        return shares[-1][-1]

    monkeypatch.setattr(_History, "defence", noted)
    truth = enumerate_posterior(model, circuit).log_evidence
    errors = []
    for seed in range(seeds):
        shares.append([])
        found = one_round(model, circuit.reader, Size(width), torch.Generator().manual_seed(seed), twist)
        errors.append(float(torch.logsumexp(found.log_weights, 0)) - truth)
    monkeypatch.undo()
    return shares, math.sqrt(sum(error**2 for error in errors) / seeds)


def test_a_chain_whose_table_is_known_is_estimated_to_thousandths(monkeypatch):
    """While its forecasts hold, a twist decides nearly alone; with a fifth for p the error was .14 nats here."""
    model, circuit, _, twist = chain_and_its_twist()
    shares, error = shares_and_error(monkeypatch, model, circuit, twist, 3, 50 if THOROUGH else 10)
    assert error < 0.005
    assert max(max(each) for each in shares) < 0.01


def test_the_defence_grows_with_what_the_twist_did_not_foretell(monkeypatch):
    model, circuit, _, twist = chain_and_its_twist()
    shares, _ = shares_and_error(monkeypatch, model, circuit, upside_down(twist), 3, 20 if THOROUGH else 5)
    for each in shares:
        assert each[:2] == [LEAST_DEFENCE] * 2 and each == sorted(each)
        assert each[-1] == DEFENCE


def test_the_table_knows_ends():
    tokenizer = Tokenizer.from_tokens([b"a", b"b", None], eos_ids=(2,))
    tables = [torch.full((3,) * (t + 1), 1 / 3) for t in range(LENGTH)]
    model = TableModel(tables, eos_ids=(2,), tokenizer=tokenizer)
    circuit = compile(contains("ab"), model, LENGTH)
    counts = NGramCounts(3, (2,))
    counts.draft(model, 200, LENGTH, torch.Generator().manual_seed(0))
    twist = look_ahead(counts.table(), circuit.reader)
    ended = circuit.reader.read(torch.tensor([[0, 1, 2]]))
    context = counts.table().after(torch.tensor([1]), torch.tensor([2]))
    assert twist.log_beta[3][context[0], ended[0]].item() == pytest.approx(0.0, abs=1e-5)
    open_state = circuit.reader.read(torch.tensor([[0]]))
    context = counts.table().single[0]
    # After "a" with three tokens left: b now (1/3), or a (1/3) and then the same with two left, or with one.
    truth = 1 / 3 + 1 / 3 * (1 / 3 + 1 / 3 * 1 / 3)
    assert twist.log_beta[1][context, open_state[0]].exp().item() == pytest.approx(truth, abs=0.02)


def test_seeds_reproduce():
    model, circuit = problem(True)
    for sampler in (WithoutReplacement(), Twisted()):
        first, second = (sampler(model, circuit, 8, None, torch.Generator().manual_seed(2)) for _ in range(2))
        assert torch.equal(first.tokens, second.tokens) and torch.equal(first.log_weights, second.log_weights)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 60), st.integers(0, 120), st.integers(1, 60), st.integers(1, 30), st.integers(1, 2_000))
@example(16, 60, 4, 1, 61)  # four of 64: a share whose root is a whole quarter
def test_texts_that_ended_take_no_place_of_those_that_go_on(width, ended, going, remaining, left):
    """Up to the width of them, as each is a row of distributions, too. They cost nothing, so nothing changes for the others."""
    size, weights = Size(width, lm_tokens=left), torch.zeros(ended + going, dtype=torch.float64)
    goes_on = torch.arange(ended + going) >= ended
    alone = size.next_width(left, remaining, goes_on[ended:], weights[ended:])
    both = size.next_width(left, remaining, goes_on, weights)
    # Less where most of the weight has ended: the square root, rounded up, of whole numbers.
    share = 1 + math.isqrt(((STRETCHED * width) ** 2 * going - 1) // (ended + going))
    assert both - min(ended, width) == min(alone, ended - min(ended, width) + share)
