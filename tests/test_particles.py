"""Particles: weights, evidence, resampling and what the report says of them."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from locore.evidence import Particles, Record
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.kernel.evidence.blocks import Blocks
from locore.kernel.tokenizer import Tokenizer

FOUR = torch.tensor([[0, 1], [2, 3], [1, 3], [0, 0]])
TOKENIZER = Tokenizer.from_tokens([b"a", b"b", b"ab", None], eos_ids=(3,))


def particles(weights, tokens=None, blocks=None, **known):
    logs = torch.tensor(weights, dtype=torch.float64).log()
    tokens = torch.tensor([[0, 1], [2, 3], [1, 3]])[: len(weights)] if tokens is None else tokens
    blocks = None if blocks is None else Blocks(tuple(blocks))
    return Particles(tokens, logs, record=Record(blocks=blocks, **known), tokenizer=TOKENIZER)


def test_texts_keep_every_byte_and_stop_at_the_end():
    p = particles([1.0, 1.0, 1.0])
    assert p.texts == ["ab", "ab", "b"] and p.bytes[2] == b"b"


def test_the_posterior_sums_over_tokenisations():
    assert particles([0.2, 0.3, 0.5]).posterior() == pytest.approx({"ab": 0.5, "b": 0.5})


def test_evidence_is_the_mean_weight_and_its_error_that_of_the_mean():
    p = particles([1.0, 2.0, 3.0])
    assert p.log_mean_weight == pytest.approx(math.log(2.0))
    values = torch.tensor([1.0, 2.0, 3.0])
    assert p.log_evidence_error == pytest.approx(float(values.std() / values.mean()) / math.sqrt(3))
    assert p.ess == pytest.approx(36 / 14)


def test_resampling_keeps_evidence_and_follows_the_weights():
    p = particles([1.0, 2.0, 7.0])
    drawn = p.resample(20_000, seed=0)
    assert drawn.log_evidence == pytest.approx(p.log_evidence)
    share = (drawn.tokens == torch.tensor([1, 3])).all(-1).double().mean().item()
    assert abs(share - 0.7) < 5 * math.sqrt(0.21 / 20_000)
    assert drawn.verdict.level == p.verdict.level  # copies are no new evidence
    assert torch.equal(p.resample(5, seed=1).tokens, p.resample(5, seed=1).tokens)


def test_unweighted_particles_claim_nothing():
    p = particles([1.0, 2.0, 7.0]).unweighted()
    assert p.info["guarantee"] == "biased" and math.isnan(p.log_evidence)
    assert p.report().startswith("Texts: biased; ") and p.weights.tolist() == pytest.approx([1 / 3] * 3)


def test_an_indicator_lowers_the_evidence():
    p = particles([1.0, 2.0, 3.0])
    kept = p.where(torch.tensor([True, False, True]), "it was even")
    assert kept.log_mean_weight == pytest.approx(math.log(4 / 3))
    assert "33.3% of the weights were zero: it was even (refused)" in kept.report(full=True)
    with pytest.raises(ZeroWeights, match="even"):
        p.where(torch.tensor([False] * 3), "it was even")


@pytest.mark.parametrize(
    ("weights", "level"), [([1.0] * 64, "trust"), ([1.0] * 12, "rough"), ([1e3] + [1.0] * 63, "do not trust")]
)
def test_the_verdict_comes_first_and_follows_the_weights(weights, level):
    tokens = torch.zeros(len(weights), 2, dtype=torch.long)
    p = particles(weights, tokens)
    assert p.verdict.level == level
    assert p.report().startswith(f"Texts: {level}; ")


def test_dependent_particles_are_judged_by_their_blocks_alone():
    tokens = torch.zeros(64, 2, dtype=torch.long)
    agree, differ, alone = (
        particles([weight] * 64, tokens, estimates)
        for weight, estimates in ((1.0, (0.0, 0.01, -0.01, 0.02)), (1e-9, (-20.0, -29.0, -28.0, -27.0)), (1.0, (0.0,)))
    )
    assert (agree.verdict.level, differ.verdict.level, alone.verdict.level) == ("trust", "do not trust", "not judged")
    assert alone.report().startswith("Texts: not judged; ")


def test_json_has_no_words_for_nan():
    import json

    json.dumps(particles([1.0, 2.0, 3.0]).unweighted().to_json(), allow_nan=False)


def test_bad_particles_are_refused():
    with pytest.raises(InvalidArgument):
        Particles(torch.zeros(2, 1, dtype=torch.long), torch.zeros(3), tokenizer=TOKENIZER)
    with pytest.raises(ZeroWeights):
        Particles(torch.zeros(0, 1, dtype=torch.long), torch.zeros(0), tokenizer=TOKENIZER)
    with pytest.raises(InvalidArgument, match="at least 1"):
        particles([1.0]).resample(0)


def test_what_is_shown_are_texts_law_and_verdict():
    p = particles([1.0] * 1000, tokens=torch.tensor([[0, 1]] * 1000))
    assert repr(p) == "<1000 particles, the model's own law: trust>\n  1.000  'ab'"
    assert "<td>1.000</td>" in p._repr_html_() and "ab" in p._repr_html_()
    assert repr(p.verdict) == "Verdict(level='trust')" and "biased" in repr(p.unweighted())


@pytest.mark.parametrize("blocks", [None, [0.05, 0.0, -0.02, 0.03], [0.3] * 4])
def test_the_evidence_is_no_more_than_certainty(blocks):
    """p(α) ≤ 1: weights of a mean above 1 say "about 1", and how far they are off; they stay as they are."""
    weights = [1.4, 1.3, 1.2, 0.9] if blocks is None else [math.exp(0.3)] * 4
    p = particles(weights, FOUR, blocks=blocks)
    mean = math.log(sum(weights) / 4)
    assert p.log_mean_weight == pytest.approx(mean) and mean > 0
    assert p.log_evidence == 0.0
    low, high = p.log_evidence_interval
    assert low <= -mean + 1e-12 and high == 0.0
    assert p.log_weights.exp().tolist() == pytest.approx(weights)


def test_a_mean_above_one_is_still_judged_by_its_excess():
    """p(α) = e^0.5 is 39 % too much, however well the blocks agree on it."""
    p = particles([math.exp(0.5)] * 64, torch.zeros(64, 2, dtype=torch.long), (0.5,) * 4)
    assert p.verdict.level == "do not trust" and "at most 1" in p.report()


def test_the_interval_of_blocks_has_the_quantile_of_their_number():
    """12.71 standard errors for two blocks, and never fewer than those of the normal law."""
    for number in (2, 4, 11, 15, 17, 20, 64):
        blocks = [-3.0 + 0.01 * (i % 2) for i in range(number)]
        p = particles([math.exp(-3.0)] * 4, FOUR, blocks, drawn=10**7)  # so many that the rule of three says nothing
        low, high = p.log_evidence_interval
        assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, number - 1) * p.log_evidence_error, rel=1e-3)
