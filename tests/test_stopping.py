"""Where a text is complete: compared with the definition, read off all sequences of all horizons."""

from __future__ import annotations

import itertools
from itertools import product

import pytest
import torch

import locore
from locore import choice, contains, count_tokens, ends_with, finished, json_schema, regex, token, word_count
from locore.constraints import constraint, contains_tokens
from locore.kernel.errors import InvalidArgument
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from locore.stopping import StopWhenComplete, is_finished, stopped
from locore.testing import enumerate_posterior
from tests.effort import some

TOKENIZER = Tokenizer.from_tokens([b"a", b"b", b"ab", None, None], eos_ids=(3, 4))
ENDS = TOKENIZER.eos_ids
LENGTH, FAR = 3, 6  # the horizon, and one behind which nothing new happens to the constraints below


@constraint
def differs_from_its_first(tokens):
    return all(tokens[i] != 0 for i in range(1, 3))


ALPHAS = {
    "choice": choice(["ab", "b"]),
    "prefixes": choice(["a", "ab", "abab"]),
    "too long for the horizon": choice(["b", "b" + 4 * "a"]),
    "pattern": regex("(ab)*b?"),
    "finite pattern": regex("a?b{0,2}"),
    "word": contains("ab"),
    "no word": ~contains("ab"),
    "ending": ends_with("b"),
    "first token": token(0, [2]),
    "not the first token": ~token(0, [1]),
    "nothing": token(0, [3]),
    "an end where a token may be": token(0, [0, 3]) & token(1, [3]) & token(2, [3]),
    "the other end": token(1, [4]),
    "either end or text": token(1, [4, 0]) & token(2, [3]),
    "Python": differs_from_its_first,
    "text and position": choice(["ab", "aba", "abab"]) & ~token(1, [0]),
    "text and number": choice(["ab", "aba", "ababab"]) & count_tokens([2], range(3), at_most=1),
    "text and tokens": choice(["abab", "ab"]) & contains_tokens([[0, 1]]),
    "either": choice(["b", "bb"]) | token(0, [0]),
    "ends": finished(),
    "does not end": ~finished(),
    "word and end": contains("ab") & finished(),
    "choice and end": choice(["ab", "abab"]) & finished(),
    "position and end": token(1, [0]) & finished(),
    "end if": (~finished()) | choice(["ab", "abab"]),
    "end implied": contains("b") >> finished(),
}


@pytest.fixture(scope="module")
def model():
    generator = torch.Generator().manual_seed(0)
    transition = torch.softmax(torch.randn(5, 5, generator=generator), -1).double()
    return MarkovModel(torch.full((5,), 1 / 5).double(), transition, eos_ids=ENDS, tokenizer=TOKENIZER)


def texts_of(length):
    """All sequences of a length: text, one end, padding."""
    for size in range(length + 1):
        for text in product(range(3), repeat=size):
            if size == length:
                yield text
            else:
                yield from (text + (end,) + (ENDS[0],) * (length - size - 1) for end in ENDS)


def satisfying(alpha):
    """For each horizon from LENGTH on, the sequences that satisfy what the constraint says at LENGTH."""
    bound = alpha.at(LENGTH).bind(TOKENIZER)
    return {n: [y for y in texts_of(n) if bound.evaluate(y, TOKENIZER)] for n in range(LENGTH, FAR + 1)}


def goes_on(good, text):
    """Does a longer text that begins with this one satisfy the constraint at some horizon?"""
    size = len(text)
    return any(size < n and y[:size] == text and y[size] not in ENDS for n, ys in good.items() for y in ys)


def definition(model, alpha, min_length=0):
    """log p of every sequence that satisfies the constraint, in the model whose complete texts end for free."""
    good = satisfying(alpha)
    result = {}
    for y in good[LENGTH]:
        size = next((i for i, token in enumerate(y) if token in ENDS), LENGTH)
        if size < min_length:
            continue
        scores = model.token_scores(torch.tensor([y]))[0]
        for i in range(min(size + 1, LENGTH)):
            ends = [end for end in ENDS if y[:i] + (end,) + (ENDS[0],) * (LENGTH - i - 1) in good[LENGTH]]
            if i >= min_length and ends and not goes_on(good, y[:i]):
                scores[i] = 0.0 if y[i] == ends[0] else -torch.inf
        if float(scores.sum()) > -torch.inf:
            result[y] = float(scores.sum())
    return result


@pytest.mark.parametrize(("name", "min_length"), some(itertools.product(ALPHAS, [0, 2]), 3, several=True))
def test_the_target_is_that_of_the_definition(model, name, min_length):
    expected = definition(model, ALPHAS[name], min_length)
    if not expected:
        pytest.skip("nothing is so long")
    circuit = locore.compile(ALPHAS[name], model, LENGTH, min_length=min_length)
    for target in (StopWhenComplete(model, circuit), stopped(model, circuit)):
        found = enumerate_posterior(target, circuit)
        joint = dict(zip(map(tuple, found.tokens.tolist()), found.log_joint.tolist(), strict=True))
        assert {y: value for y, value in joint.items() if value > -torch.inf} == pytest.approx(expected)


@pytest.mark.parametrize("name", ALPHAS)
def test_finished_texts_are_those_with_an_end_and_those_that_are_complete(model, name):
    good = satisfying(ALPHAS[name])
    tokens = good[LENGTH]
    expected = [any(end in y for end in ENDS) or not goes_on(good, y) for y in tokens]
    circuit = locore.compile(ALPHAS[name], model, LENGTH)
    assert is_finished(circuit, torch.tensor(tokens), ENDS).tolist() == expected


def test_the_pool_has_complete_texts_and_others_of_full_length(model):
    """Else the law above would say little."""
    kinds = {(ENDS[0] in y, goes_on(good, y)) for good in map(satisfying, ALPHAS.values()) for y in good[LENGTH]}
    assert {(False, True), (False, False)} <= kinds


@pytest.mark.parametrize("name", ALPHAS)
def test_a_circuit_from_disk_knows_what_is_complete(model, name):
    from locore.compilers.circuit_files import from_tensors, to_tensors

    circuit = locore.compile(ALPHAS[name], model, LENGTH)
    again = from_tensors(*to_tensors(circuit))
    assert all(map(torch.equal, circuit.reader.complete, again.reader.complete))


def test_permutations_end_with_their_positions(model):
    """They are read by another reader, which knows the horizon only."""
    particles = locore.generate(model, "", locore.permutation([0, 1], [0, 1]), 2, sampler="exact")
    assert sorted(map(tuple, particles.tokens.tolist())) == [(0, 1), (1, 0)]


def test_everything_may_come_where_only_one_token_may_not():
    tiny = locore.load("tiny")
    asked = {"sampler": "exact", "num_particles": 5000}
    free = locore.generate(tiny, "The weather is", ~token(0, [5]), 1, ending="complete", **asked)
    paid = locore.generate(tiny, "The weather is", ~token(0, [5]), 1, ending="eos", **asked)
    assert free.posterior() == pytest.approx(paid.posterior())


FINITE = {
    "choice": (choice([" happy", " sad", " surprised"]), 10),
    "pattern": (regex(" (red|dark blue)( and (red|green))?\\."), 18),
    "schema": (json_schema({"enum": ["yes", "no", True]}, whitespace="compact", escapes="minimal"), 6),
}


@pytest.mark.parametrize("name", some(FINITE))
def test_answers_do_not_depend_on_a_horizon_that_is_long_enough(name):
    alpha, length = FINITE[name]
    tiny = locore.load("tiny")
    near, far = (
        locore.generate(tiny, "The weather is", alpha, n, sampler="exact", num_particles=10**6) for n in (length, 2 * length)
    )
    assert near.info["ending"] == far.info["ending"] == "complete"
    assert near.log_evidence == pytest.approx(far.log_evidence)
    assert near.posterior() == pytest.approx(far.posterior())
    assert len(near.posterior()) > 1


def test_nothing_follows_json():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    tiny = locore.load("tiny")
    for text, valid in (('{"a": 1}', True), (' {"a": 1}', True), ('{"a": 1} ', False), ('{"a": 1}\n', False)):
        assert locore.holds(json_schema(schema, whitespace="any"), text, tiny) is valid


def test_where_no_text_can_be_complete_the_default_leaves_the_end_to_the_model(model):
    endless = MarkovModel(
        torch.full((3,), 1 / 3).double(),
        torch.full((3, 3), 1 / 3).double(),
        eos_ids=(),
        tokenizer=Tokenizer.from_tokens([b"a", b"b", b"ab"], eos_ids=()),
    )
    assert locore.generate(endless, "", contains("b"), 3, seed=0).info["ending"] == "eos"
    assert locore.generate(model, "", contains("b"), 3, seed=0).info["ending"] == "complete"
    assert locore.generate(model, "", contains("b"), 3, seed=0, ending="eos").info["ending"] == "eos"
    with pytest.raises(InvalidArgument, match="end of sequence"):
        locore.generate(endless, "", contains("b"), 3, ending="complete")
    pytest.importorskip("pysdd")
    with pytest.raises(InvalidArgument, match="from left to right"):
        StopWhenComplete(model, locore.compile(token(0, [1]), model, 2, vtree=[0, 1]))


def test_a_constraint_that_is_never_complete_leaves_the_model_as_it_is(model):
    assert stopped(model, locore.compile(contains("b"), model, 4)) is model
    assert stopped(model, locore.compile(contains("b") & finished(), model, 4)) is model
    assert stopped(model, locore.compile(choice("b"), model, 4)) is not model


def test_whatever_is_finished_ends_before_its_horizon(model):
    particles = locore.generate(model, "", word_count(1, 1) & finished(), 4, sampler="exact", num_particles=10**4)
    assert all(set(y) & set(ENDS) for y in particles.tokens.tolist())
    cut = locore.generate(model, "", word_count(1, 1) & ~finished(), 4, sampler="exact", num_particles=10**4)
    assert not any(set(y) & set(ENDS) for y in cut.tokens.tolist())
    free = locore.generate(model, "", word_count(1, 1), 4, sampler="exact", num_particles=10**4)
    shares = [particles.log_evidence, cut.log_evidence]
    assert float(torch.logsumexp(torch.tensor(shares, dtype=torch.float64), 0)) == pytest.approx(free.log_evidence)
