"""Fuzzing of constraints on text over three kinds of tokenizers: circuits, the plain check and an oracle agree."""

from __future__ import annotations

import itertools
import json
import random
from contextlib import suppress

import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st

import locore
from locore import explain
from locore.circuits.masks import MaskReader
from locore.constraints import from_json, has_text
from locore.kernel.errors import InvalidConstraint
from locore.kernel.numerics import NEG_INF
from locore.kernel.tokenizer import Tokenizer

from ..constraints.texts import BROKEN
from .cases import Vocabulary, problems
from .queries import compiled, drawn, nearby, number_of_sequences, points, walked


def test_circuit_plain_check_and_oracle_agree(vocabulary, explore):
    """On sequences that the circuit draws, on those that it refuses, on their neighbours, and on others."""

    def law(arguments) -> None:
        problem, seed = arguments
        generator, case, tokenizer = random.Random(seed), problem.case, problem.vocabulary.tokenizer
        circuit, opposite = compiled(case.constraint, problem), compiled(~case.constraint, problem)
        accepted, refused = drawn(circuit, problem, generator), drawn(opposite, problem, generator)
        others = [vocabulary.sequence(problem.texts, problem.length, generator) for _ in range(8)]
        others += [nearby(ids, problem, generator) for ids in accepted + refused]
        sequences = accepted + refused + others
        truths = [case.accepts(problem.read(ids)) for ids in sequences]
        assert all(truths[: len(accepted)])
        assert not any(truths[len(accepted) :][: len(refused)])
        assert truths == [case.constraint.evaluate(ids, tokenizer) for ids in sequences]
        if circuit is None:
            assert not any(truths)
            return
        batch = torch.tensor(sequences)
        assert truths == circuit.accepts(batch).tolist()
        assert truths == (circuit.log_mass(points(batch, tokenizer.vocab_size)) == 0.0).tolist()
        assert truths == [walked(circuit, ids) for ids in sequences]

    explore(st.tuples(problems(vocabulary), st.integers(0, 2**32)), law)


def test_counts_add_up_and_survive_json(vocabulary, explore):
    """What satisfies a constraint and what satisfies its negation are all sequences; the JSON form means the same."""

    def law(problem) -> None:
        constraint = problem.case.constraint.at(problem.length)
        circuit, opposite = compiled(constraint, problem), compiled(~constraint, problem)
        counts = [0 if one is None else one.count() for one in (circuit, opposite)]
        assert sum(counts) == number_of_sequences(problem, not has_text(constraint))
        again = from_json(json.loads(json.dumps(constraint.to_json())))
        assert again == constraint
        same = compiled(again, problem)
        assert (0 if same is None else same.count()) == counts[0]

    explore(problems(vocabulary), law)


def test_allowed_tokens_are_those_that_can_be_completed(vocabulary, explore):
    """Against the mass of what begins with the prefix and the token."""

    def law(arguments) -> None:
        problem, seed, least = arguments
        generator, size = random.Random(seed), vocabulary.tokenizer.vocab_size
        circuit = compiled(problem.case.constraint, problem, min_length=least % (problem.length + 1))
        ids = generator.choice(drawn(circuit, problem, generator) or [None])
        assume(ids is not None)
        prefix = nearby(ids, problem, generator)[: generator.randrange(problem.length)]
        tokens = {*vocabulary.sequence(problem.texts, 20, generator), *vocabulary.special, *ids}
        tokens = torch.tensor(sorted(tokens | {generator.randrange(size) for _ in range(20)}))
        begun = torch.tensor(prefix, dtype=torch.long).expand(len(tokens), -1)
        rows = torch.zeros(len(tokens), problem.length, size, dtype=torch.float64)
        rows[:, : len(prefix) + 1] = points(torch.cat([begun, tokens[:, None]], 1), size)
        wanted = circuit.log_mass(rows) > NEG_INF
        assert circuit.allowed(torch.tensor(prefix, dtype=torch.long))[tokens].tolist() == wanted.tolist()
        reader = MaskReader(circuit.reader)
        for one in prefix:
            reader.advance(one)
        assert reader.mask()[tokens].tolist() == wanted.tolist()

    explore(st.tuples(problems(vocabulary), st.integers(0, 2**32), st.integers(0, 7)), law)


PARTS = [b"a", b"b", b"ab", b" ", b"\xc3", b"\xa9", b".", b"A", "\ufffd".encode(), None, None]  # the last but one ends a text
SMALL = Vocabulary("small", Tokenizer.from_tokens(PARTS, eos_ids=[9]))


def test_all_sequences_of_a_small_vocabulary(explore):
    """Count, acceptance and allowed tokens after every prefix, all by the oracle alone."""

    def law(arguments) -> None:
        problem, least = arguments
        tokenizer, least = SMALL.tokenizer, least % (problem.length + 1)
        circuit = compiled(problem.case.constraint, problem, min_length=least)
        every = list(itertools.product(range(tokenizer.vocab_size), repeat=problem.length))
        reads = map(problem.read, every)
        models = [read.ids for read in reads if len(read.spelled) >= least and problem.case.accepts(read)]
        if circuit is None:
            assert not models
            return
        assert circuit.count() == len(models)
        assert {every[i] for i in circuit.accepts(torch.tensor(every)).nonzero()[:, 0].tolist()} == set(models)
        for size in range(problem.length):
            begun = {ids[: size + 1] for ids in models}
            for prefix in itertools.product(range(tokenizer.vocab_size), repeat=size):
                allowed = circuit.allowed(torch.tensor(prefix, dtype=torch.long)).nonzero()[:, 0].tolist()
                assert allowed == [one for one in range(tokenizer.vocab_size) if (*prefix, one) in begun]

    themes = [("a", "b", "ab", "é"), ("a", " ", ".", "b"), ("é", "\ufffd", "a", "A")]
    explore(st.tuples(problems(SMALL, [1, 2, 3], themes=themes), st.integers(0, 3)), law)


def test_explanations_say_what_holds(vocabulary, explore):
    """A position that the text does not have is an error everywhere."""

    def law(arguments) -> None:
        problem, texts = arguments
        constraint, tokenizer = problem.case.constraint, vocabulary.tokenizer
        pool = [text.decode() for text in problem.texts if text not in BROKEN]
        text = "".join(pool[number % len(pool)] for number in texts)
        ids = [*tokenizer.encode(text), tokenizer.eos_ids[0]]
        try:
            truth = locore.holds(constraint, text, tokenizer)
        except InvalidConstraint:
            with pytest.raises(InvalidConstraint, match="position"):
                explain(constraint, text, tokenizer)
            return
        found = explain(constraint, text, tokenizer)
        with suppress(IndexError):  # the part that speaks about such a position was simplified away, as in `a & ~a`
            assert truth == problem.case.accepts(problem.read(ids))
        assert found.holds == truth
        assert found.decisive()
        assert str(found).startswith("yes" if truth else "no ")

    explore(st.tuples(problems(vocabulary), st.lists(st.integers(0, 20), max_size=4)), law)
