"""What is counted on the way has the states, masks and ends of what is multiplied out."""

import pickle
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import locore
from locore.circuits import DEAD
from locore.circuits.counted import CountedReader
from locore.compilers import on_demand
from locore.compilers.compile import _problem, compile
from locore.constraints import (
    ban,
    char_count,
    contains,
    count,
    ends_with,
    finished,
    regex,
    sentence_count,
    starts_with,
    word_count,
)
from locore.kernel.compilers.ways import written
from locore.kernel.errors import BudgetExceeded, Unsatisfiable
from locore.kernel.limits import Limits
from locore.kernel.tokenizer import Tokenizer
from tests.circuits import brute_force
from tests.constraints.texts import bounds
from tests.effort import THOROUGH

PIECES = [b"a", b"b", b" ", b".", b"ab", b"a b.", "é".encode(), "é".encode()[:1], "é".encode()[1:], None]
TOKENIZER = Tokenizer.from_tokens([*PIECES, None, None], eos_ids=[10, 11])
ENDLESS = Tokenizer.from_tokens(PIECES, eos_ids=[])
PHRASES = st.text("ab é.", min_size=1, max_size=3)


def counters():
    """What counts, and what says of nothing that it is counted, which is then negated."""
    amounts = st.builds(lambda kind, b: kind(*b), st.sampled_from([word_count, char_count, sentence_count]), bounds(7))
    times = st.builds(lambda what, b: count(what, *b), PHRASES, bounds(4)) | st.builds(
        lambda what, b: contains(what, *b, words=True), PHRASES, bounds(4)
    )
    return st.builds(lambda leaf, negated: ~leaf if negated else leaf, amounts | times, st.booleans())


def others():
    phrases = st.lists(PHRASES, min_size=1, max_size=2)
    return st.one_of(
        st.builds(ban, phrases),
        st.builds(contains, phrases),
        st.builds(starts_with, PHRASES),
        st.builds(ends_with, PHRASES),
        st.sampled_from(["(ab)*", "(?s).*a", "a[^.]{2,4}", ""]).map(regex),
        st.builds(lambda a, b: a | ~b, st.builds(contains, PHRASES), st.builds(ends_with, PHRASES)),
    )


def both(alpha, tokenizer, length, min_length):
    """The reading that counts, and the circuit that is multiplied out; None where there is none."""
    problem = _problem(alpha, tokenizer, length, min_length, Limits()).of_whole_characters()
    found = []
    for make in (partial(on_demand.counted_circuit, problem), partial(written, problem)):
        try:
            found.append(make())
        except Unsatisfiable:
            found.append(None)
    return found


@pytest.fixture
def always(monkeypatch):
    """However small it is."""
    monkeypatch.setattr(on_demand, "FAR", 1)
    monkeypatch.setattr(on_demand, "MOST_STATES", 0)


def assert_alike(followed, written):
    """Wherever tokens lead, both allow the same, end alike and take the same texts for complete."""
    one, other = followed.reader, written.reader
    states = {(one.start, other.start)}
    for position in range(one.length + 1):
        first, second = (torch.tensor(column) for column in zip(*sorted(states), strict=True))
        assert one.completed(position, first).tolist() == other.completed(position, second).tolist(), position
        if position == one.length:
            assert one.accepting(first).tolist() == other.accepting(second).tolist()
            break
        allowed = one.allowed_tokens(position, first)
        assert torch.equal(allowed, other.allowed_tokens(position, second)), position
        row, token = allowed.nonzero(as_tuple=True)
        after = [reader.step(position, s[row], token) for reader, s in ((one, first), (other, second))]
        outlined = one.outline.step(position, one.outlined(first)[row], token)
        assert torch.equal(outlined, one.outlined(after[0]))
        assert all(DEAD not in one.tolist() for one in after)
        states = set(zip(*(one.tolist() for one in after), strict=True))
        row, token = (~allowed).nonzero(as_tuple=True)
        assert (one.step(position, first[row], token) == DEAD).all()
    if any(bool(flags.any()) for flags in other.complete[:-1]):
        assert one.completes


@settings(max_examples=400 if THOROUGH else 10, deadline=None)
@given(st.data())
def test_followed_is_multiplied_out(data):
    tokenizer = data.draw(st.sampled_from([TOKENIZER, TOKENIZER, ENDLESS]))
    parts = [data.draw(counters()), *data.draw(st.lists(counters() | others(), max_size=2))]
    alpha = parts[0]
    for part in [*parts[1:], *([finished()] if data.draw(st.booleans()) else [])]:
        alpha = alpha & part
    length = data.draw(st.integers(1, 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_demand, "FAR", 1)
        patch.setattr(on_demand, "MOST_STATES", 0)
        followed, written = both(alpha, tokenizer, length, data.draw(st.integers(0, min(2, length))))
    if written is None or followed is None:
        assert written is followed
        return
    assert isinstance(followed.reader, CountedReader)
    assert_alike(followed, written)


def test_what_is_asked_of_nodes_is_asked_of_those_that_are_written_down(always):
    alpha = char_count(2, 4) & contains("a") & finished()
    followed, written = both(alpha, TOKENIZER, 4, 0)
    log_probs = brute_force.random_log_probs(2, 4, TOKENIZER.vocab_size, seed=1)
    assert followed.count() == written.count()
    assert (followed.num_nodes, followed.num_edges) == (written.num_nodes, written.num_edges)
    assert torch.equal(followed.log_mass(log_probs), written.log_mass(log_probs))
    assert torch.equal(followed.sample(log_probs, seed=3)[0], written.sample(log_probs, seed=3)[0])
    assert torch.equal(followed.most_probable(log_probs)[0], written.most_probable(log_probs)[0])
    assert torch.equal(followed.marginals(log_probs), written.marginals(log_probs))
    again = pickle.loads(pickle.dumps(followed))
    assert_alike(again, written)
    assert again.count() == written.count()


def test_a_product_that_is_small_is_written_down_and_a_large_one_is_not():
    small = compile(char_count(hi=20) & contains("ab"), TOKENIZER, 6)
    large = compile(char_count(hi=2_000) & contains("ab") & contains("b."), TOKENIZER, 6)
    assert not isinstance(small.reader, CountedReader) and isinstance(large.reader, CountedReader)


def test_a_count_without_end_is_refused():
    with pytest.raises(BudgetExceeded):
        compile(char_count(hi=10**12), TOKENIZER, 6)


def test_an_impossible_count_names_its_parts():
    with pytest.raises(Unsatisfiable, match=r"char_count.* cannot hold"):
        compile(char_count(3_000, 4_000) & contains("ab") & contains("b."), TOKENIZER, 6)


def test_keywords_in_a_tweet_are_ready_at_once():
    model = locore.load("tiny")
    tweet = char_count(hi=199) & contains("espresso") & contains("croissants") & finished()
    circuit = compile(tweet, model, 40, use_cache=False)
    assert isinstance(circuit.reader, CountedReader)
    assert circuit.reader.control.num_states < 100
