"""A trie of prefixes of one model and one constraint, with what is known to fail below each."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from locore.circuits import DEAD, LeftToRight
from locore.models import Cursor, LanguageModel
from locore.numerics import categorical

Records = Literal["failed", "all", "masked"]
KEPT_CURSORS = 256  # with their caches; a prefix whose cursor was dropped is read again
MEMORY_NUMBERS = 2**26  # probabilities that are remembered; later prefixes are forgotten after their attempt


@dataclass(frozen=True, eq=False)
class Attempt:
    """One way from the root.

    Attributes:
        accepted: does it satisfy the constraint?
        tokens: up to and with the one that failed.
        scores: log p of each.
        mass: what was not known to fail when it began; it was drawn from p given that.
        lm_tokens: next-token distributions after at least one token that it used, read now or
            before.
    """

    accepted: bool
    tokens: tuple[int, ...]
    scores: tuple[float, ...]
    mass: float
    lm_tokens: int


@dataclass(eq=False)
class _Node:
    """A prefix.

    Attributes:
        parent: None at the root.
        token: the last token.
        prob: p(token | parent).
        state: Long[1], of the constraint's reader.
        kept: is it part of the trie, and not forgotten after its attempt?
        open: f64[vocab], p(v | prefix) times the share below that is not known to fail; None before
            the first visit.
    """

    parent: _Node | None
    token: int
    prob: float
    state: Tensor
    kept: bool = True
    open: Tensor | None = None
    children: dict[int, _Node] = field(default_factory=dict)


class Trie:
    """Attempts to draw a sequence, each from the model given that it is not known to fail.

    What an attempt records: "failed", the prefix that failed; "all", every token that cannot follow
    a prefix it visits, after having drawn from that prefix; "masked" the same before drawing, so
    that no attempt fails and none is an exact draw.
    """

    def __init__(self, model: LanguageModel, reader: LeftToRight, records: Records) -> None:
        """A trie of nothing."""
        self._model = model
        self._reader = reader
        self._records = records
        self._root = _Node(None, -1, 1.0, reader.initial(1))
        self._cursors: OrderedDict[_Node, Cursor] = OrderedDict()
        self._numbers = 0

    @property
    def remaining(self) -> float:
        """Probability of what is not known to fail: an upper bound of p(α)."""
        return 1.0 if self._root.open is None else float(self._root.open.sum())

    def attempt(self, generator: torch.Generator) -> Attempt:
        """Draw one sequence, and record what it shows."""
        length, eos_ids = self._reader.length, self._model.tokenizer.eos_ids
        uniforms = torch.rand(length, generator=generator, dtype=torch.float64)
        node, mass, alive = self._root, self.remaining, True
        tokens: list[int] = []
        scores: list[float] = []
        lm_tokens, ended = 0, False
        for position in range(length):
            fresh, choices = self._visit(node, position)
            lm_tokens += position > 0 and not ended
            if not bool((choices > 0).any()):
                alive = False
                break
            token = int(categorical(choices.log()[None], uniforms[position, None]))
            child = self._child(node, position, token)
            ended |= token in eos_ids
            tokens.append(token)
            scores.append(math.log(child.prob))
            alive = int(child.state) != DEAD
            self._record(node, position, fresh, None if alive else token)
            if not alive:
                break
            node = child
        self._back_up(node)
        return Attempt(alive, tuple(tokens), tuple(scores), mass, lm_tokens)

    def _visit(self, node: _Node, position: int) -> tuple[bool, Tensor]:
        """Whether the node is new, and f64[vocab], what to draw from."""
        if node.open is not None:
            return False, node.open
        node.open = self._cursor(node).log_probs[0].double().exp()
        if self._records == "masked":
            self._mask(node, position)
        self._numbers += len(node.open) if node.kept else 0
        return True, node.open

    def _child(self, node: _Node, position: int, token: int) -> _Node:
        """The child of a visited node; it is remembered if it can be completed and there is room."""
        if token in node.children:
            return node.children[token]
        assert node.open is not None
        state = self._reader.step(position, node.state, torch.tensor([token]))
        room = self._numbers + self._model.vocab_size <= MEMORY_NUMBERS
        kept = node.kept and room and int(state) != DEAD
        child = _Node(node, token, float(node.open[token]), state, kept)
        if child.kept:
            node.children[token] = child
        return child

    def _record(self, node: _Node, position: int, fresh: bool, failed: int | None) -> None:
        assert node.open is not None
        if fresh and self._records == "all":
            self._mask(node, position)
        if failed is not None:
            node.open[failed] = 0.0

    def _mask(self, node: _Node, position: int) -> None:
        assert node.open is not None
        allowed = self._reader.allowed_tokens(position, node.state)[0]
        node.open[~allowed] = 0.0

    @staticmethod
    def _back_up(node: _Node) -> None:
        """Tell the ancestors what is open below; what is not remembered must stay open."""
        while node.parent is not None:
            parent = node.parent
            if node.kept and node.open is not None:
                assert parent.open is not None
                parent.open[node.token] = node.prob * node.open.sum()
            node = parent

    def _cursor(self, node: _Node) -> Cursor:
        """The cursor after a prefix, from the nearest ancestor whose cursor is still there."""
        unread = []
        while node not in self._cursors and node.parent is not None:
            unread.append(node)
            node = node.parent
        cursor = self._cursors[node] if node in self._cursors else self._model.begin(1)
        self._cursors[node] = cursor
        self._cursors.move_to_end(node)
        for child in reversed(unread):
            cursor = cursor.advance(torch.tensor([child.token]))
            self._cursors[child] = cursor
        while len(self._cursors) > max(KEPT_CURSORS, 1):
            self._cursors.popitem(last=False)
        return cursor
