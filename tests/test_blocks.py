"""What independent blocks say of their error, against the error itself."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import locore
from locore import contains, ends_with
from locore.evidence import Particles
from locore.kernel.evidence.blocks import Block, Blocks, Lineage, Surprise, relative_error
from locore.kernel.evidence.bounds import is_out_of_sight
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel, TableModel
from locore.samplers import SequentialMonteCarlo, Twisted, WithoutReplacement
from locore.samplers.swor import Size
from locore.testing import enumerate_posterior
from tests.samplers.one_round import one_round

LETTERS = [chr(97 + i) for i in range(8)]
LENGTH = 6


@pytest.fixture(scope="module")
def chain():
    generator = torch.Generator().manual_seed(3)
    transition = torch.softmax(2 * torch.randn(8, 8, generator=generator), -1).double()
    return MarkovModel(torch.full((8,), 1 / 8).double(), transition, tokenizer=Tokenizer.from_tokens(LETTERS))


def draws_of(sampler, model, circuit, num, runs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [sampler(model, circuit, num, None, generator) for _ in range(runs)]


def particles_of(draws, tokenizer):
    return Particles.of(draws, tokenizer)


@pytest.mark.slow
def test_thinning_knows_the_variance_of_a_single_block(chain):
    """Systematic draws vary less than the formula of independent ones says, so it may err on the large side only."""
    circuit = locore.compile(contains("ab"), chain, LENGTH)
    found = draws_of(WithoutReplacement(blocks=1), chain, circuit, 20, 600)
    evidence = torch.tensor([draws.blocks.log_evidence[0] for draws in found]).double().exp()
    claimed = torch.tensor([draws.blocks.members[0].variance for draws in found]).double() * evidence.square()
    real = float(evidence.var())
    # The standard error of a variance of 600 draws with a kurtosis of some 6 is 9 %; 5 of them either way.
    assert 0.55 * real < float(claimed.mean()) < 2.5 * real


def test_what_is_kept_whole_has_no_error(chain):
    circuit = locore.compile(ends_with("ab"), chain, 3)
    draws = WithoutReplacement(blocks=2)(chain, circuit, 200, None, torch.Generator().manual_seed(0))
    assert draws.blocks.error == draws.blocks.unseen == 0
    assert draws.blocks.effective_number() == sum(len(block.row) for block in draws.blocks.members)


@pytest.mark.parametrize("sampler", [WithoutReplacement(blocks=4), SequentialMonteCarlo(), Twisted(None, blocks=4)])
def test_blocks_are_what_the_particles_are_the_mean_of(chain, sampler):
    circuit = locore.compile(contains("ab"), chain, LENGTH)
    draws = sampler(chain, circuit, 80, None, torch.Generator().manual_seed(1))
    weights = torch.zeros(len(draws.tokens), dtype=torch.float64)
    for block in draws.blocks.members:
        weights.index_add_(0, block.row, block.log_weights.exp() / 4)
    torch.testing.assert_close(weights * len(weights), draws.log_weights.exp())


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [WithoutReplacement(blocks=4), SequentialMonteCarlo()])
def test_a_filter_leaves_the_blocks_of_the_narrower_constraint(chain, sampler):
    """What is left are unbiased estimates of p(α ∧ indicator), each block's own, and an interval that covers it."""
    circuit = locore.compile(contains("ab"), chain, LENGTH)
    every = enumerate_posterior(chain, circuit)
    texts = [chain.tokenizer.decode(y) for y in every.tokens.tolist()]
    even = torch.tensor([text.count("c") == text.count("d") for text in texts])
    truth = float(torch.logsumexp(every.log_joint[even], 0))
    estimates, covered = [], 0
    found = draws_of(sampler, chain, circuit, 120, 300)
    for draws in found:
        particles = particles_of(draws, chain.tokenizer)
        keep = torch.tensor([text.count("c") == text.count("d") for text in particles.texts])
        kept = particles.where(keep, "unequal")
        assert kept.log_evidence == pytest.approx(float(torch.tensor(kept.blocks.log_evidence).logsumexp(0)) - math.log(4))
        estimates.append(kept.blocks.log_evidence)
        low, high = kept.log_evidence_interval
        covered += low <= truth <= high
    values = torch.tensor(estimates).double().exp()
    z = (values.mean(0) - math.exp(truth)) / (values.std(0) / math.sqrt(len(found)))
    assert bool((z.abs() < 4.9).all()), z  # four numbers, a false alarm in 250,000
    # At a true coverage of 95 % fewer than 260 of 300 have a probability of 1e-8.
    assert covered >= 260


def test_the_effective_number_of_independent_draws_is_their_number():
    """64 draws in 8 blocks, of a law over 30 values: the estimate's own spread is about a quarter."""
    generator = torch.Generator().manual_seed(0)
    law = torch.rand(30, generator=generator)
    found = []
    for _ in range(60):
        members = []
        tokens = torch.multinomial(law, 64, replacement=True, generator=generator)[:, None]
        for rows in torch.arange(64).chunk(8):
            members.append(Block(rows, torch.zeros(8, dtype=torch.float64)))
        found.append(Blocks.of(members, tokens).effective_number())
    assert 50 < sum(found) / len(found) < 85


def test_a_shared_beginning_is_worth_one_draw():
    """Every block has 16 sequences, which agree on their first token: there are as many draws of it as blocks."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(40):
        first = torch.randint(5, (8,), generator=generator).repeat_interleave(16)
        tokens = torch.stack([first, torch.randint(1000, (128,), generator=generator)], 1)
        members = [Block(rows, torch.zeros(16, dtype=torch.float64)) for rows in torch.arange(128).chunk(8)]
        found.append(Blocks.of(members, tokens).effective_number())
    assert 5 < sorted(found)[20] < 13


def test_a_beginning_that_all_share_tells_nothing():
    """What the sums of a block are off one by rounding is no difference between blocks: the number was −9e15."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        tokens = torch.stack([torch.zeros(12, dtype=torch.long), torch.arange(12)], 1)
        members = [Block(rows, torch.randn(len(rows), generator=generator).double()) for rows in torch.arange(12).split([7, 5])]
        assert Blocks.of(members, tokens).effective_number() == Blocks.of(members, tokens[:, 1:]).effective_number()


@given(st.lists(st.floats(-30, 0), min_size=2, max_size=8), st.integers(0, 10_000))
def test_blocks_filtered_by_nothing_are_the_same(logs, seed):
    generator = torch.Generator().manual_seed(seed)
    members = [
        Block(torch.arange(3) + 3 * k, log + torch.randn(3, generator=generator).double(), Surprise(1.0, 0.5, 3))
        for k, log in enumerate(logs)
    ]
    blocks = Blocks.of(members, torch.arange(3 * len(logs))[:, None])
    same = blocks.where(torch.ones(3 * len(logs), dtype=torch.bool))
    assert same is not None and same.log_evidence == blocks.log_evidence and same.unseen == blocks.unseen
    assert blocks.spread == pytest.approx(relative_error(blocks.log_evidence))


def test_a_block_that_lost_everything_counts_as_nothing():
    members = [Block(torch.tensor([k]), torch.zeros(1, dtype=torch.float64)) for k in range(4)]
    kept = Blocks.of(members, torch.zeros(4, 1, dtype=torch.long)).where(torch.tensor([True, True, False, True]))
    assert kept is not None and kept.log_evidence == (0.0, 0.0, -math.inf, 0.0)
    assert kept.spread == pytest.approx(relative_error([0.0, 0.0, -math.inf, 0.0]))
    assert kept.effective_number() == 3
    first_gone = Blocks.of([Block(torch.arange(4), torch.zeros(4, dtype=torch.float64))] * 2, torch.arange(4)[:, None])
    left = first_gone.where(torch.tensor([False, True, True, False]))
    assert left is not None and left.effective_number() == 4  # two blocks that agree, of two sequences each


def test_a_lineage_by_hand():
    """Two of three prefixes were drawn, each with probability 1/2; one has all the weight that went through them."""
    once = torch.tensor([0.0, math.log(2), math.log(2)]).double()
    weights = torch.tensor([0.5, 0.5, 0.0]).double().log()

    def variance(parents, raises):
        return Lineage(parents, raises, weights).variance_of(weights)

    # F = .5 and 0, mean .25: Σ ½ (F − F̄)², times 2/(2 − 1).
    assert variance((torch.zeros(3).long(),), (once,)) == pytest.approx(2 * (0.5 * 0.25**2 * 2))
    # Each goes on for certain before that draw, or after it: the same. Drawn before it (π = 1/2): half of it, beside its own.
    whole, zeros = torch.arange(3), torch.zeros(3).double()
    for parents, raises in (((zeros.long(), whole), (once, zeros)), ((zeros.long(), whole), (zeros, once))):
        assert variance(parents, raises) == pytest.approx(0.125)
    assert variance((zeros.long(), whole), (once, once)) == pytest.approx(0.125 + 0.5 * 0.125)


def test_draws_at_the_last_position_cost_nothing():
    """They keep the sum, and what each prefix leads to is known before them; of a part of the sequences they do not."""
    once, whole = torch.tensor([0.0, math.log(2), math.log(2)]).double(), torch.arange(3)
    of_prefixes, of_sequences = (torch.tensor(weights).double().log() for weights in ([0.5, 0.3, 0.2], [0.5, 0.5, 0.0]))
    lineage = Lineage((torch.zeros(3).long(), whole), (once, once), of_prefixes)
    assert lineage.variance() == pytest.approx(2 * (0.5 * 0.05**2 * 2))  # F = .3 and .2
    block = Block(whole, of_sequences, lineage=lineage)
    assert block.variance == lineage.variance()
    everything = block.where(torch.ones(3, dtype=torch.bool), whole)
    assert everything.variance == block.variance
    part = block.where(torch.tensor([True, True, False]), whole)
    assert part.variance == lineage.variance_of(of_sequences) > block.variance


def test_the_error_does_not_depend_on_how_many_sequences_are_kept(chain):
    """Ẑ does not either: they are drawn last."""
    reader = locore.compile(contains("ab"), chain, LENGTH).reader
    one, all_of_them = (one_round(chain, reader, Size(20, wanted), torch.Generator().manual_seed(3)) for wanted in (3, 20))
    assert len(one.tokens) < len(all_of_them.tokens)
    assert float(one.log_weights.logsumexp(0)) == pytest.approx(float(all_of_them.log_weights.logsumexp(0)))
    assert 0 < one.lineage.variance() == pytest.approx(all_of_them.lineage.variance())


def test_what_was_read_whole_is_not_out_of_sight(monkeypatch, tmp_path):
    monkeypatch.setenv("LOCORE_CACHE", str(tmp_path))
    options = {"max_new_tokens": 4, "num_particles": 4_000, "sampler": "swor", "seed": 0}
    p = locore.generate("tiny", "The weather is", ends_with(" purple") & locore.choice([" purple"]), **options)
    assert p.blocks.are_complete and p.log_evidence < -7 and p.verdict.level == "trust"


@pytest.mark.slow
def test_runs_that_miss_a_mode_together_do_not_claim_to_know(stories260k, monkeypatch, tmp_path):
    """Most runs miss " zoo" and agree with each other for it: by their spread alone half of the intervals would hold."""
    truth, error = -8.3136, 0.0039  # three runs of 36,000 LM tokens
    monkeypatch.setenv("LOCORE_CACHE", str(tmp_path))
    model = locore.load(stories260k)
    locore.prepare(model)
    prompt = "Once upon a time, there was a little girl named Lily."
    covered = 0
    for seed in range(100):
        low, high = locore.generate(model, prompt, contains("xy") | contains("zoo"), 8, seed=seed).log_evidence_interval
        covered += low - 2 * error <= truth <= high + 2 * error
    assert covered >= 86  # at a true coverage of 95 % fewer have a probability of 1e-4


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rare", [0, 5])
def test_what_is_lost_before_anything_is_dropped_hides_nothing(rare, seed):
    """p(α) is 1/1,000, lost at the first token, so that all prefixes compete for what is left, or at the last."""
    likely = torch.tensor([0.3, 0.3, 0.4]).double()
    unlikely = torch.tensor([0.001, 0.5, 0.499]).double()
    transition = [unlikely if position == rare else likely for position in range(6)]
    model = TableModel([table.expand(*(3,) * position, 3) for position, table in enumerate(transition)])
    p = locore.generate(model, [], locore.token(rare, [0]), 6, sampler="swor", num_particles=32, seed=seed)
    draws = 32 * (1000 if rare == 0 else 1)
    assert 0.99 * draws < math.exp(p.record.blocks.log_seen) < 3 * draws
    assert is_out_of_sight(p) == (rare == 5)
