"""Fuzzing of `canonical="alpha"` and `"only"`, where it bites and at the boundary of the prompt."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st

import locore
from locore.constraints import choice, contains_tokens
from locore.kernel.errors import BudgetExceeded, Unsatisfiable, ZeroWeights
from locore.models.table import MarkovModel
from locore.samplers import WithoutReplacement
from locore.stopping import OnlyCanonical

from .cases import Problem, Vocabulary, problems

PROMPTS = ["", "Once upon a time", "The weather is ", "n", "é", "hat", " a", "😀"]


def is_canonical(problem: Problem, prompt: str, ids: tuple[int, ...], mode: str) -> bool:
    """Is the text after the prompt tokenised so ("only"), or does its canonical tokenisation satisfy the constraint?"""
    tokenizer, read = problem.vocabulary.tokenizer, problem.read(ids)
    head = [one for one in tokenizer.encode_prompt(prompt) if tokenizer.token_bytes[one] is not None]
    try:
        whole, alone = tokenizer.encode(prompt + read.content.decode()), tokenizer.encode(read.content.decode())
    except UnicodeDecodeError:  # a character cut in two, of which the tokenizer itself says nothing
        whole, alone = [], list(tokenizer.canonize(ids, head))
    canonical = whole[len(head) :] if whole[: len(head)] == head and whole else alone
    if mode == "only":
        return canonical == list(ids[: len(read.spelled)])
    padding = [tokenizer.eos_ids[0]] * (problem.length - len(canonical))
    return len(canonical) <= problem.length and problem.case.accepts(problem.read([*canonical, *padding]))


def peaked(problem: Problem, vocabulary: Vocabulary, seed: int) -> MarkovModel:
    """A model that likes the texts of a problem."""
    generator, size = random.Random(seed), vocabulary.tokenizer.vocab_size
    weights = vocabulary.likely(problem.texts, 1, 2, generator)[1, 0].softmax(0)
    return MarkovModel(weights, weights.expand(size, size), tokenizer=vocabulary.tokenizer)


def test_canonical_particles(vocabulary, explore):
    """Those of "alpha" are some of the same run, with their weights; those of "only" are all canonical."""

    def law(arguments) -> None:
        problem, prompt, mode, seed = arguments
        model = peaked(problem, vocabulary, seed)
        options = {"max_new_tokens": problem.length, "num_particles": 16, "sampler": "masked-is", "seed": seed}
        try:
            everything = locore.generate(model, prompt or [], problem.case.constraint, **options)
        except (Unsatisfiable, BudgetExceeded):
            assume(False)
        keep = [is_canonical(problem, prompt, tuple(ids), mode) for ids in everything.tokens.tolist()]
        try:
            found = locore.generate(model, prompt or [], problem.case.constraint, canonical=mode, **options)
        except ZeroWeights:
            assert mode == "only" or not any(keep)
            return
        assert all(is_canonical(problem, prompt, tuple(ids), mode) for ids in found.tokens.tolist())
        if mode == "alpha":
            assert found.tokens.tolist() == everything.tokens[torch.tensor(keep)].tolist()
            share = math.log(sum(keep) / len(keep))
            torch.testing.assert_close(found.log_weights, everything.log_weights[torch.tensor(keep)] + share)

    modes = st.sampled_from(["alpha", "only"])
    explore(st.tuples(problems(vocabulary, [2, 3, 4]), st.sampled_from(PROMPTS), modes, st.integers(0, 2**31 - 1)), law)


def test_steering_changes_no_canonical_sequence(vocabulary, explore):
    """Of what satisfies the constraint, canonical sequences keep their probability, and others do not gain any."""

    def law(arguments) -> None:
        problem, prompt, seed = arguments
        model = peaked(problem, vocabulary, seed)
        try:
            circuit = locore.compile(problem.case.constraint, model, problem.length)
        except (Unsatisfiable, BudgetExceeded):
            assume(False)
        assume(circuit.reader is not None)
        before = vocabulary.tokenizer.encode_prompt(prompt)
        steered = OnlyCanonical(model, circuit.reader, before)
        drafts = WithoutReplacement()(model, circuit, 64, None, torch.Generator().manual_seed(seed)).tokens
        plain, changed = model.score(drafts), steered.score(drafts)
        assert (changed <= plain + 1e-9).all()
        keep = torch.tensor([is_canonical(problem, prompt, tuple(ids), "only") for ids in drafts.tolist()])
        torch.testing.assert_close(changed[keep], plain[keep])
        cursor = steered.begin(1)
        for token in drafts[0, :-1]:
            torch.testing.assert_close(cursor.log_probs.exp().sum(), torch.tensor(1.0, dtype=cursor.log_probs.dtype))
            cursor = cursor.advance(token[None])

    explore(st.tuples(problems(vocabulary, [2, 3, 4]), st.sampled_from(PROMPTS), st.integers(0, 2**31 - 1)), law)


def uniform(vocabulary: Vocabulary) -> MarkovModel:
    size = vocabulary.tokenizer.vocab_size
    weights = torch.full((size,), 1 / size, dtype=torch.float64)
    return MarkovModel(weights, weights.expand(size, size), tokenizer=vocabulary.tokenizer)


def test_canonical_bites(vocabulary):
    """A word in single bytes is not its canonical tokenisation, whatever the prompt; the canonical one is kept."""
    tokenizer = vocabulary.tokenizer
    word = next(content for content in sorted(vocabulary.ids_of, key=len, reverse=True) if content.isalpha())
    cut = [vocabulary.ids_of[bytes([byte])][-1] for byte in word]
    whole = tokenizer.encode(word.decode())
    either = (contains_tokens([cut]) | contains_tokens([whole])) & choice(word.decode())
    options = {"max_new_tokens": len(cut), "num_particles": 400, "sampler": "exact", "seed": 0}
    for prompt in ("x", "é"):
        every = locore.generate(uniform(vocabulary), prompt, either, **options)
        kept = locore.generate(uniform(vocabulary), prompt, either, canonical="only", **options)
        assert sorted(len([one for one in ids if one not in tokenizer.eos_ids]) for ids in every.tokens.tolist())[-1] == len(
            cut
        )
        assert {tuple(ids[: len(whole)]) for ids in kept.tokens.tolist()} == {tuple(whole)}
        with pytest.raises(ZeroWeights):
            locore.generate(
                uniform(vocabulary), prompt, contains_tokens([cut]) & choice(word.decode()), canonical="alpha", **options
            )


def test_canonical_respects_the_boundary_of_the_prompt(vocabulary):
    """No continuation can hold a token that begins in the prompt; then the text by itself is what is canonical."""
    tokenizer = vocabulary.tokenizer
    straddled = []
    for content in vocabulary.ids_of:
        if not (content.isalpha() and content.isascii() and len(content) > 2):
            continue
        text = content.decode()
        head = [one for one in tokenizer.encode_prompt(text[:1]) if tokenizer.token_bytes[one] is not None]
        if tokenizer.encode(text)[: len(head)] != head:
            straddled.append(text)
    for text in straddled[:5]:
        found = locore.generate(
            uniform(vocabulary),
            text[:1],
            choice(text[1:]),
            max_new_tokens=len(text),
            num_particles=100,
            sampler="exact",
            canonical="only",
        )
        canonical = tokenizer.encode(text[1:])
        assert {tuple(ids[: len(canonical)]) for ids in found.tokens.tolist()} == {tuple(canonical)}
    assert straddled
