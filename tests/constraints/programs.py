"""Random Boolean programs over tokens, as a pair of functions.

The first runs on the view that `@constraint` functions get, the second on a plain list of ids.
"""

from __future__ import annotations

import operator

from hypothesis import strategies as st

from locore.constraints import contains

from .strategies import IDS, POSITIONS, TEXTS, WORDS

COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def literals():
    ids = st.lists(IDS, max_size=3)
    spans = st.lists(IDS, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda i, v: (lambda t: t[i] == v, lambda y: y[i] == v), POSITIONS, IDS),
        st.builds(lambda i, v: (lambda t: v != t[-i - 1], lambda y: v != y[-i - 1]), POSITIONS, IDS),
        st.builds(lambda i, v: (lambda t: t(i, v), lambda y: y[i] == v), POSITIONS, IDS),
        st.builds(lambda i, v: (lambda t: t(i, v), lambda y: y[i : i + len(v)] == v), POSITIONS, spans),
        st.builds(lambda i, v: (lambda t: t[i].isin(v), lambda y: y[i] in v), POSITIONS, ids),
        st.builds(lambda i, v: (lambda t: t[i] in v, lambda y: y[i] in v), POSITIONS, ids),
        st.builds(lambda i, v: (lambda t: v in t[i:], lambda y: v in y[i:]), POSITIONS, IDS),
        st.builds(lambda v: (lambda t: t.isin(v).any(), lambda y: any(x in v for x in y)), ids),
        st.builds(lambda v: (lambda t: (t != v).all(), lambda y: v not in y), IDS),
        st.builds(lambda s: (lambda t: contains(s), lambda y: s.encode() in WORDS.text_bytes(y)), TEXTS),
    )


def counts():
    def compared(make, plain, compare, bound):
        return (lambda t: compare(make(t), bound), lambda y: compare(plain(y), bound))

    def weighted(ids, weights):
        def make(t):
            return 1 - sum(w * (x == v) for x, v, w in zip(t, ids, weights, strict=False))

        return make

    return st.one_of(
        st.builds(
            lambda v, c, k: compared(lambda t: (t == v).sum(), lambda y: y.count(v), c, k),
            IDS,
            st.sampled_from(COMPARISONS),
            st.integers(-1, 4),
        ),
        st.builds(
            lambda v, c, k: compared(lambda t: sum(x != v for x in t[1:]), lambda y: 2 - y[1:].count(v), c, k),
            IDS,
            st.sampled_from(COMPARISONS),
            st.integers(-1, 3),
        ),
        st.builds(
            lambda v, w, c, k: compared(weighted(v, w), weighted(v, w), c, k),
            st.lists(IDS, min_size=1, max_size=3),
            st.lists(st.integers(-2, 2), min_size=1, max_size=3),
            st.sampled_from(COMPARISONS),
            st.integers(-3, 3),
        ),
    )


def programs():
    def both(run, *parts):
        """The same Python code on the view and on plain values."""
        runs, truths = [p[0] for p in parts], [p[1] for p in parts]
        return lambda t: run(t, *runs), lambda y: bool(run(y, *truths))

    def grown(inner):
        return st.one_of(
            st.builds(lambda a: both(lambda t, a: not a(t), a), inner),
            st.builds(lambda a, b: both(lambda t, a, b: a(t) and b(t), a, b), inner, inner),
            st.builds(lambda a, b: both(lambda t, a, b: a(t) or b(t), a, b), inner, inner),
            st.builds(lambda a, b: both(lambda t, a, b: a(t) & b(t), a, b), inner, inner),
            st.builds(lambda a, b: both(lambda t, a, b: a(t) | b(t), a, b), inner, inner),
            st.builds(lambda a, b: both(lambda t, a, b: a(t) == b(t), a, b), inner, inner),
            st.builds(lambda a, b: both(lambda t, a, b: a(t) != b(t), a, b), inner, inner),
            st.builds(lambda a, b, c: both(lambda t, a, b, c: b(t) if a(t) else c(t), a, b, c), inner, inner, inner),
            st.builds(lambda a, b: both(lambda t, a, b: all(x(t) for x in (a, b)), a, b), inner, inner),
            st.builds(lambda a, b: both(lambda t, a, b: any([a(t), b(t), b(t)]), a, b), inner, inner),
        )

    return st.recursive(literals() | counts(), grown, max_leaves=6)
