"""A search for stop strings is what plain search finds, however long they are."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locore.automata.stops import StopMachine
from locore.constraints import before, contains, ends_with
from locore.kernel.errors import BudgetExceeded
from locore.kernel.limits import Limits

WORDS = st.text("ab", min_size=1, max_size=5).map(str.encode)
LONG = b"a" * 5000


@given(st.lists(WORDS, min_size=1, max_size=4), st.text("abc", max_size=12).map(str.encode))
def test_a_state_is_the_longest_end_that_may_become_a_string(stops, text):
    machine = StopMachine(stops)
    state = 0
    for size in range(1, len(text) + 1):
        state = machine.step(state, text[size - 1])
        read = text[:size]
        if any(stop in read for stop in stops):
            assert state == machine.stopped
        else:
            ends = (read[start:] for start in range(size + 1))
            assert machine.pending[state] == next(end for end in ends if any(stop.startswith(end) for stop in stops))
    assert state == machine.read(0, text)


def test_long_strings_cost_as_much_as_they_are_long():
    machine = StopMachine([LONG, b"a" * 4000 + b"b"])
    assert machine.pending[machine.read(0, LONG[:-1])] == LONG[:-1]
    assert machine.pending[machine.read(0, LONG[:-1] + b"c")] == b""
    assert machine.read(0, LONG[:-1] + b"b") == machine.stopped


@pytest.mark.parametrize("stops", [[b"a" * 40_000], [b"a" * 1000 + bytes([byte]) for byte in range(64)]], ids=["one", "many"])
def test_what_is_kept_is_as_large_as_the_strings(stops):
    """Bytes that Python allocates; all beginnings by themselves would be 800 MB for the first."""
    size = sum(map(len, stops))
    tracemalloc.start()
    try:
        machine = StopMachine(stops)
        assert machine.stopped <= size + 1
        assert tracemalloc.get_traced_memory()[1] < 600 * size
    finally:
        tracemalloc.stop()


def test_strings_that_are_too_long_are_refused_before_they_cost():
    stops = [b"a" * 300_000]
    tracemalloc.start()
    try:
        with pytest.raises(BudgetExceeded, match="stop strings"):
            StopMachine(stops)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def accepts(automaton, text):
    state = automaton.start
    for byte in text:
        state = automaton.table[state, automaton.column.get(byte, automaton.default)]
    return bool(automaton.accepting[state])


@given(
    st.lists(WORDS, min_size=1, max_size=4),
    st.sampled_from([contains("ab"), ends_with("ba"), contains("b", exactly=2)]),
    st.lists(st.text("abc", max_size=12).map(str.encode), min_size=1, max_size=20),
)
def test_what_is_accepted_before_a_string_is_what_plain_search_leaves(stops, leaf, texts):
    inner = leaf.automaton()
    cut = StopMachine(stops).before(inner)
    for text in texts:
        found = [(place + len(stop), place) for stop in stops if (place := text.find(stop)) >= 0]
        assert accepts(cut, text) == accepts(inner, text[: min(found)[1]] if found else text)


def test_a_compile_of_them_ends_in_time():
    with Limits(seconds=1e-6).enforced(), pytest.raises(BudgetExceeded, match="fewer or shorter stop strings"):
        before([LONG.decode()], contains("b")).automaton()
