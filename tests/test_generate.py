"""The front door: what comes back satisfies the constraint, its options mean what they say, and the report is honest."""

from __future__ import annotations

import math

import pytest
import torch

import locore
from locore import ban, choice, contains, ends_with, token
from locore.kernel.errors import InvalidArgument, InvalidConstraint, Unsatisfiable, ZeroWeights
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from locore.samplers import BY_NAME
from locore.testing import enumerate_posterior

TOKENS = [b"a", b"b", b"ab", b" ", None, None]
TOKENIZER = Tokenizer.from_tokens(TOKENS, eos_ids=(5,))


@pytest.fixture(scope="module")
def model():
    generator = torch.Generator().manual_seed(0)
    transition = torch.softmax(torch.randn(6, 6, generator=generator), -1).double()
    return MarkovModel(torch.full((6,), 1 / 6).double(), transition, eos_ids=(5,), tokenizer=TOKENIZER)


@pytest.mark.parametrize("sampler", [name for name in BY_NAME if name != "oversampling"])
@pytest.mark.parametrize("alpha", [ban(["ab"]), contains("ab") & ~contains(" "), token(0, [1]) >> ends_with("b")])
def test_everything_returned_satisfies_the_constraint(model, sampler, alpha):
    particles = locore.generate(model, "", alpha, max_new_tokens=5, num_particles=12, sampler=sampler, seed=0)
    bound = alpha.at(5).bind(TOKENIZER)
    assert all(bound.evaluate(y, TOKENIZER) for y in particles.tokens.tolist())
    assert particles.info["sampler"] and particles.info["guarantee"] in (
        ("mode",) if sampler == "search" else ("proper", "asymptotic", "biased")
    )
    assert {"lm_tokens", "lm_contexts", "seconds", "seed"} <= particles.info.keys()
    mean = float(torch.logsumexp(particles.log_weights, 0)) - math.log(len(particles))
    if sampler == "search":  # the most probable texts, which say nothing of p(α) but a bound
        assert math.isnan(particles.log_evidence)
    else:
        assert particles.log_evidence == pytest.approx(mean)


def test_evidence_and_posterior_are_those_of_enumeration(model):
    circuit = locore.compile(contains("ab"), model, 4)
    truth = enumerate_posterior(model, circuit)
    particles = locore.generate(model, "", contains("ab"), max_new_tokens=4, num_particles=5000, sampler="exact")
    assert particles.log_evidence == pytest.approx(truth.log_evidence)
    assert particles.posterior() == pytest.approx(truth.texts(TOKENIZER))
    assert particles.verdict.level == "trust"


def test_the_same_seed_gives_the_same_particles_and_none_is_recorded(model):
    first = locore.generate(model, "", contains("ab"), max_new_tokens=6, seed=3)
    again = locore.generate(model, "", contains("ab"), max_new_tokens=6, seed=3)
    assert torch.equal(first.tokens, again.tokens) and torch.equal(first.log_weights, again.log_weights)
    drawn = locore.generate(model, "", contains("ab"), max_new_tokens=6)
    repeated = locore.generate(model, "", contains("ab"), max_new_tokens=6, seed=drawn.info["seed"])
    assert torch.equal(drawn.tokens, repeated.tokens)


def test_min_new_tokens_is_part_of_the_constraint(model):
    particles = locore.generate(model, "", ~contains("bbb"), max_new_tokens=5, min_new_tokens=3, seed=0)
    assert not (particles.tokens[:, :3] == 5).any()
    whole = locore.compile(~contains("bbb"), model, 5)
    assert locore.compile(~contains("bbb"), model, 5, min_length=3).count() < whole.count()


def test_only_canonical_tokens_are_kept_on_demand(model):
    """ "ab" may be written as one token or as two; the tokenizer writes one."""
    alpha = contains("ab")
    free = locore.generate(model, "", alpha, max_new_tokens=4, num_particles=400, sampler="masked", seed=1)
    only = locore.generate(model, "", alpha, max_new_tokens=4, num_particles=400, sampler="masked", seed=1, canonical="only")
    assert any([0, 1] in [y[i : i + 2] for i in range(3)] for y in free.tokens.tolist())
    assert not any([0, 1] in [y[i : i + 2] for i in range(3)] for y in only.tokens.tolist())
    truth = enumerate_posterior(model, locore.compile(alpha, model, 4))
    canonical = torch.tensor([list(TOKENIZER.canonize(y)) == [t for t in y if t != 5] for y in truth.tokens.tolist()])
    evidence = float(torch.logsumexp(truth.log_joint[canonical], 0))
    assert abs(only.log_evidence - evidence) < 6 * max(only.log_evidence_error, 0.02)


def test_canonical_alpha_is_the_papers_indicator(model):
    """A ban of token ids alone lets other spellings pass; with canonize(y) ⊨ α they get weight zero."""
    alpha = ban("ab", level="tokens")
    free = locore.generate(model, "", alpha, max_new_tokens=4, num_particles=300, sampler="masked", seed=1)
    strict = locore.generate(model, "", alpha, max_new_tokens=4, num_particles=300, sampler="masked", seed=1, canonical="alpha")
    assert any("ab" in text for text in free.texts)
    assert not any("ab" in text for text in strict.texts)


def test_stopping_when_complete_makes_the_end_free(model):
    free = locore.generate(model, "", choice(["ab", "b"]), max_new_tokens=4, num_particles=500)
    paid = locore.generate(model, "", choice(["ab", "b"]), max_new_tokens=4, num_particles=500, ending="eos")
    ends = {tuple(y): s.exp().item() for y, s in zip(paid.tokens.tolist(), paid.token_scores.sum(-1), strict=True)}
    for y, score in zip(free.tokens.tolist(), free.token_scores, strict=True):
        length = y.index(5)
        assert score[length].item() == 0.0  # the end itself is certain
        assert score.sum().exp().item() > ends[tuple(y)]
    assert free.log_evidence > paid.log_evidence


def test_a_dear_end_is_pointed_out():
    transition = torch.tensor([[0.999, 1e-3 - 1e-6, 1e-6]] * 2 + [[0.0, 0.0, 1.0]]).double()
    model = MarkovModel(
        torch.tensor([0.5, 0.5, 0.0]).double(),
        transition,
        eos_ids=(2,),
        tokenizer=Tokenizer.from_tokens([b"a", b"b", None], (2,)),
    )
    particles = locore.generate(model, "", choice(["ab"]), max_new_tokens=6, ending="eos")
    assert "ending the text costs" in particles.report(full=True) and "ending='complete'" in particles.report(full=True)
    assert "ending the text costs" not in locore.generate(model, "", choice(["ab"]), max_new_tokens=6).report(full=True)
    open_ended = locore.generate(model, "", contains("ab") & locore.finished(), max_new_tokens=3).report(full=True)
    assert "ending the text costs" in open_ended and "ending='complete'" not in open_ended


def test_holds_reads_a_finished_text():
    assert locore.holds(ban(["bad"]), "ab ab", TOKENIZER)
    assert not locore.holds(ban(["ab"]), "b ab", TOKENIZER)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"max_new_tokens": 0}, InvalidArgument, "at least 1"),
        ({"num_particles": 0}, InvalidArgument, "num_particles"),
        ({"budget": 0}, InvalidArgument, "budget"),
        ({"canonical": "yes"}, InvalidArgument, "canonical"),
        ({"ending": "now"}, InvalidArgument, "ending"),
        ({"sampler": "beam"}, InvalidArgument, "unknown sampler"),
        ({"constraint": "ab"}, InvalidConstraint, "@constraint"),
        ({"constraint": contains("zzzz")}, Unsatisfiable, "no sequence"),
        ({"constraint": contains("ab ab ab"), "max_new_tokens": 2}, Unsatisfiable, "ask for at least 5 tokens"),
        ({"constraint": contains("bbbbb"), "sampler": "oversampling", "num_particles": 1, "seed": 0}, ZeroWeights, "none of"),
    ],
)
def test_bad_input_is_named(model, options, error, words):
    arguments = {"constraint": contains("ab"), "max_new_tokens": 5, **options}
    with pytest.raises(error, match=words):
        locore.generate(model, "", **arguments)


def test_a_function_that_changes_its_mind_is_named_as_the_cause():
    answers = iter([True] + [False] * 1000)  # true when it is compiled, false whenever a text is checked
    fickle = locore.constraint(lambda tokens: next(answers))
    with pytest.raises(locore.kernel.errors.LocoreError, match="depends on more than its tokens"):
        locore.generate(MarkovModel([1.0], [[1.0]]), [], fickle, 2, num_particles=2, seed=0)
