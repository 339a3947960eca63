"""A search for stop strings is what plain search finds, however long they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locore.automata.stops import StopMachine
from locore.constraints import before, contains
from locore.errors import BudgetExceeded
from locore.limits import Limits

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


def test_a_compile_of_them_ends_in_time():
    with Limits(seconds=1e-6).enforced(), pytest.raises(BudgetExceeded, match="fewer or shorter stop strings"):
        before([LONG.decode()], contains("b")).automaton()
