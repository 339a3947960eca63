"""A left-to-right reading of nested texts, whose states are made when a text first gets there.

A state is that of a `Pushdown`, or the end of the text. What a token does is read off a trie of the vocabulary, all tokens at
once; which tokens may come at a position follows from what the texts behind them cost at least.

Costs are counted in tokens: a literal piece as few as spell it, any other byte one. In so many tokens a text can be
completed for certain, and one token more on the right way always lowers the number, so no text is cut off. Where a single token
could spell the ends of several pieces at once there may be a way that is shorter still; texts that need it to fit are left out.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locore.automata import pushdown
from locore.automata.lift import vocabulary_trie
from locore.automata.pushdown import PLAIN, Follow, Pushdown
from locore.automata.tables import Trie
from locore.circuits.circuit import Circuit
from locore.circuits.left_to_right import DEAD, MEMORY_BYTES, NO_LOOK_AHEAD, LeftToRight
from locore.errors import BudgetExceeded, InvalidArgument
from locore.limits import check_progress

LONG_PIECE = 256  # bytes of a literal piece of which not all ends are kept
ENDED, FIRST = 0, 1  # the state of a finished text, and that of the empty one; state s of the automaton is s + FIRST
NEVER = np.uint16(np.iinfo(np.uint16).max)
Nodes = NDArray[np.int64]
NO_TABLE = (
    "this constraint is followed state by state, and has no circuit as a whole; use a sampler that needs none, such as 'smc', "
    "'swor', 'masked' or 'twisted'"
)


class FollowedReader(LeftToRight):
    """The reading of the texts of a `Pushdown`, state by state; see `LeftToRight` for its methods."""

    start = FIRST
    coaccessible = None
    complete = None
    tabulated = False

    def __init__(
        self,
        follow: Follow,
        token_bytes: tuple[bytes | None, ...],
        eos_ids: tuple[int, ...],
        length: int,
        must_end: bool,
        device: torch.device | str = "cpu",
    ) -> None:
        """Nothing has been read yet.

        Args:
            follow: makes the automaton.
            must_end: has the text to end within the length?
        """
        self._given = follow, token_bytes, eos_ids, length, must_end
        self._token_bytes, self._eos_ids, self._must_end = token_bytes, frozenset(eos_ids), must_end
        self._padding = eos_ids[0] if eos_ids else None
        self.token_class = torch.arange(len(token_bytes), device=device)
        self._lock = threading.RLock()
        self._needs: OrderedDict[int, NDArray[np.uint16]] = OrderedDict()

    def __reduce__(self) -> tuple[object, ...]:
        return FollowedReader, (*self._given, self.token_class.device)  # without the states that were made

    @property
    def length(self) -> int:
        """Number of positions."""
        return self._given[3]

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """None: what is here can be made again from the constraint."""
        return ()

    @property
    def rows(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        """None.

        Raises:
            BudgetExceeded: always.
        """
        raise BudgetExceeded(NO_TABLE)

    live = rows

    @cached_property
    def automaton(self) -> Pushdown:
        """Whose states are read."""
        return self._given[0](Spelling(self._token_bytes))

    @property
    def is_satisfiable(self) -> bool:
        """Is there a text of this length?"""
        return bool(self.automaton.costs[0] + self._must_end <= self.length)

    def step(self, position: int, states: Tensor, tokens: Tensor, look_ahead: bool = True) -> Tensor:
        """Long[batch]: states after reading `tokens` at `position`; DEAD where nothing can be completed any more."""
        _require(look_ahead)
        pairs = zip(states.tolist(), tokens.tolist(), strict=True)
        after = [self.state_after(position, state, token) for state, token in pairs]
        return torch.tensor(after, dtype=torch.long, device=states.device).view(states.shape)

    def allowed(self, position: int, states: Tensor, look_ahead: bool = True) -> Tensor:
        """Bool[batch, vocab]: tokens that may come at `position` so that the rest can still be completed."""
        _require(look_ahead)
        masks = [self.mask(position, state) for state in states.tolist()]
        found = torch.stack(masks) if masks else torch.zeros(0, len(self._token_bytes), dtype=torch.bool)
        return found.to(self.token_class.device)

    def allowed_tokens(self, position: int, states: Tensor, look_ahead: bool = True) -> Tensor:
        """The same: each token is a class of its own."""
        return self.allowed(position, states, look_ahead)

    def accepting(self, states: Tensor) -> Tensor:
        """Bool[batch]: do these states, after the last position, satisfy the constraint?"""
        flags = [
            state == ENDED or (state >= FIRST and not self._must_end and self._may_end(state)) for state in states.tolist()
        ]
        return torch.tensor(flags, dtype=torch.bool, device=states.device)

    def completed(self, position: int, states: Tensor) -> Tensor:
        """Bool[batch]: behind which nothing but the end can come."""
        flags = [state >= FIRST and self._may_end(state) and self.automaton.is_over(state - FIRST) for state in states.tolist()]
        return torch.tensor(flags, dtype=torch.bool, device=states.device)

    @property
    def completes(self) -> bool:
        """Can a text be complete before its last position?"""
        return True

    def masks(self, memory_bytes: int = MEMORY_BYTES) -> FollowedReader:
        """Itself: what it has found out is kept."""
        return self

    def to(self, device: torch.device | str) -> LeftToRight:
        """The same reading with its results on a device; the work is done where Python runs."""
        return FollowedReader(*self._given, device)

    def state_after(self, position: int, state: int, token: int) -> int:
        """The state after one token; DEAD where nothing can be completed any more."""
        if token in self._eos_ids:
            if state == ENDED:
                return ENDED if token == self._padding else DEAD
            return ENDED if state >= FIRST and self._may_end(state) else DEAD
        content = self._token_bytes[token]
        if state < FIRST or content is None:
            return DEAD
        after = state - FIRST
        with self._lock:
            for byte in content:
                after = self.automaton.after(after, byte)
                if after == pushdown.DEAD:
                    return DEAD
        left = self.length - position - 1 - self._must_end
        return after + FIRST if self.automaton.costs[after] <= left else DEAD

    def mask(self, position: int, state: int) -> Tensor:
        """Bool[vocab]: the tokens that may come."""
        allowed = np.zeros(len(self._token_bytes), dtype=np.bool_)
        if state >= FIRST:
            left = self.length - position - 1 - self._must_end
            if left >= 0:
                allowed = self._needed(state - FIRST) <= left
            if self._may_end(state):
                allowed[list(self._eos_ids)] = True
        elif state == ENDED:
            allowed[self._padding] = True
        return torch.from_numpy(allowed)

    def _may_end(self, state: int) -> bool:
        return self.automaton.accepts_at(state - FIRST)

    def _needed(self, state: int) -> NDArray[np.uint16]:
        """UInt16[vocab]: how many more tokens it takes after each token, at most; NEVER where nothing can be completed."""
        with self._lock:
            state = int(self.automaton.stand_ins(np.array([state], dtype=np.int32))[0])
            needed = self._needs.get(state)
            if needed is None:
                needed = self._needs[state] = self._computed(state)
                if len(self._needs) * needed.nbytes > MEMORY_BYTES:
                    self._needs.popitem(last=False)
            else:
                self._needs.move_to_end(state)
        return needed

    def _computed(self, state: int) -> NDArray[np.uint16]:
        """Level by level of the trie.

        Where plain characters change nothing, as in most strings, all tokens of nothing else are answered at once, and only
        strings of bytes that lead to other tokens are followed.
        """
        automaton, tree = self.automaton, self._tree
        after = np.full(tree.trie.num_nodes, DEAD, dtype=np.int32)
        after[0] = state
        found = np.full(len(self._token_bytes), NEVER, dtype=np.uint16)
        nodes = np.zeros(1, dtype=np.int64)
        plain = automaton.plain_rooms(after[nodes]) >= tree.longest
        entered = [nodes[plain]]  # nodes behind which plain tokens have one cost
        while len(nodes):
            nodes, symbols, parents, from_plain = tree.children(nodes, plain)
            sources = after[parents]
            for source in set(sources[automaton.table[sources, 0] == pushdown.UNREAD].tolist()):
                automaton.read(source)
            targets = automaton.table[sources, symbols]
            alive = targets != pushdown.DEAD
            nodes, targets = nodes[alive], automaton.stand_ins(targets[alive])
            after[nodes] = targets
            plain = automaton.plain_rooms(targets) >= tree.longest
            entered.append(nodes[plain & ~(from_plain[alive] & IS_PLAIN[symbols[alive]])])
        costs = np.append(np.minimum(automaton.costs[: automaton.num_states], float(NEVER)), float(NEVER)).astype(np.uint16)
        by_spelling = costs[after[tree.ends]]
        places, owners = tree.plain_below(np.concatenate(entered))
        by_spelling[places] = costs[after[owners]]
        found[tree.tokens] = by_spelling
        found[list(self._eos_ids)] = NEVER
        return found

    @cached_property
    def _tree(self) -> _Tree:
        return _tree_of(self._token_bytes)


def _require(look_ahead: bool) -> None:
    if not look_ahead:
        raise InvalidArgument(NO_LOOK_AHEAD)


IS_PLAIN = np.zeros(256, dtype=np.bool_)  # bytes that stand for themselves in a JSON string
IS_PLAIN[list(PLAIN)] = True


class _Tree:
    """The trie of a vocabulary, read from the root on.

    Attributes:
        tokens: Int64[tokens with bytes], sorted by their bytes; ends: the node of each.
        depth: Int64[nodes].
        last_special: Int64[tokens with bytes], where the last byte is that is not plain; -1 if there is none.
        longest: token, in bytes.
    """

    def __init__(self, trie: Trie, token_bytes: tuple[bytes | None, ...]) -> None:
        self.trie = trie
        self._symbols = np.concatenate([np.zeros(1, dtype=np.int64), *(symbols for _, symbols, _ in trie.levels)])
        self._counts = np.zeros(trie.num_nodes, dtype=np.int64)
        self._first = np.zeros(trie.num_nodes, dtype=np.int64)
        self.depth = np.zeros(trie.num_nodes, dtype=np.int64)
        for level, (parents, _, children) in enumerate(trie.levels, 1):  # the children of a node are neighbours
            own, first, counts = np.unique(parents, return_index=True, return_counts=True)
            self._first[own], self._counts[own] = children[first], counts
            self.depth[children] = level
        contents = [(content, token) for token, content in enumerate(token_bytes) if content]
        contents.sort()
        self.tokens = np.array([token for _, token in contents], dtype=np.int64)
        self.ends = trie.node[self.tokens]
        self.longest = len(trie.levels)
        self.last_special = np.array(
            [max((place for place, byte in enumerate(content) if not IS_PLAIN[byte]), default=-1) for content, _ in contents]
        )
        counts = np.bincount(self.ends, minlength=trie.num_nodes)
        deepest = np.full(trie.num_nodes, -1)
        np.maximum.at(deepest, self.ends, self.last_special)
        for parents, _, children in reversed(trie.levels):
            np.add.at(counts, parents, counts[children])
            np.maximum.at(deepest, parents, deepest[children])
        first = np.zeros(trie.num_nodes, dtype=np.int64)
        own = np.bincount(self.ends, minlength=trie.num_nodes)
        for parents, _, children in trie.levels:  # behind the tokens that end at the parent, and the children before
            before = np.cumsum(counts[children]) - counts[children]
            starts = np.searchsorted(parents, parents, side="left")
            first[children] = first[parents] + own[parents] + before - before[starts]
        self._below, self._through = first, counts  # the tokens through a node are neighbours in the order of their bytes
        self._leads_on = deepest >= self.depth - 1  # to a token with a byte that is not plain, this one or a later one

    def children(self, nodes: Nodes, plain: NDArray[np.bool_]) -> tuple[Nodes, Nodes, Nodes, NDArray[np.bool_]]:
        """The children of some nodes, their bytes, their parents, and which of these are plain; of plain ones only some."""
        counts = self._counts[nodes]
        parents, from_plain = np.repeat(nodes, counts), np.repeat(plain, counts)
        offsets = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
        children = self._first[parents] + offsets
        if plain.any():
            kept = ~from_plain | self._leads_on[children]
            children, parents, from_plain = children[kept], parents[kept], from_plain[kept]
        return children, self._symbols[children], parents, from_plain

    def plain_below(self, nodes: Nodes) -> tuple[Nodes, Nodes]:
        """The places, among the sorted tokens, of those that go on from one of these nodes by plain bytes; and that node."""
        counts = self._through[nodes]
        owners = np.repeat(nodes, counts)
        places = self._below[owners] + np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        plain = self.last_special[places] < self.depth[owners]
        return places[plain], owners[plain]


_trees: OrderedDict[int, tuple[tuple[bytes | None, ...], _Tree]] = OrderedDict()


def _tree_of(token_bytes: tuple[bytes | None, ...]) -> _Tree:
    key = id(token_bytes)
    if key not in _trees or _trees[key][0] is not token_bytes:
        _trees[key] = token_bytes, _Tree(vocabulary_trie(token_bytes), token_bytes)
        if len(_trees) > 4:
            _trees.popitem(last=False)
    return _trees[key][1]


class Spelling:
    """The measure of literal pieces: how many tokens spell them at least."""

    def __init__(self, token_bytes: tuple[bytes | None, ...]) -> None:
        """By a vocabulary."""
        self._known = {b"": 0.0}
        self._tokens = _contents(token_bytes)
        self._longest = max(map(len, self._tokens), default=0)

    def __call__(self, text: bytes) -> float:
        """In tokens; infinite where they cannot be spelled."""
        if len(text) > LONG_PIECE:
            return self._of_long(text)
        for start in reversed(range(len(text))):  # from the end on, so that what follows is known
            rest = text[start:]
            if rest not in self._known:
                ends = range(1, min(len(rest), self._longest) + 1)
                ways = (1 + self._known[rest[end:]] for end in ends if rest[:end] in self._tokens)
                self._known[rest] = min(ways, default=math.inf)
        return self._known[text]

    def _of_long(self, text: bytes) -> float:
        """The same, without keeping all of its ends, which together would be as large as its length squared."""
        if text not in self._known:
            least = [math.inf] * len(text) + [0.0]
            for start in reversed(range(len(text))):
                check_progress("finding the tokens of a long text", "use shorter texts")
                ends = range(start + 1, min(len(text), start + self._longest) + 1)
                least[start] = min((1 + least[end] for end in ends if text[start:end] in self._tokens), default=math.inf)
            self._known[text] = least[0]
        return self._known[text]


_sets: OrderedDict[int, tuple[tuple[bytes | None, ...], frozenset[bytes]]] = OrderedDict()


def _contents(token_bytes: tuple[bytes | None, ...]) -> frozenset[bytes]:
    key = id(token_bytes)
    if key not in _sets or _sets[key][0] is not token_bytes:
        _sets[key] = token_bytes, frozenset(content for content in token_bytes if content)
        if len(_sets) > 4:
            _sets.popitem(last=False)
    return _sets[key][1]


def spells_every_byte(token_bytes: tuple[bytes | None, ...]) -> bool:
    """Is each byte of UTF-8 a token of its own? Costs take it that a byte can be written by one token.

    The first bytes of planes without characters (F1 to F4) are not asked for, as vocabularies trained on texts lack them.
    """
    contents = _contents(token_bytes)
    return all(bytes([byte]) in contents for byte in (*range(0x20, 0xC0), *range(0xC2, 0xF1)))


class FollowedCircuit(Circuit):
    """A circuit that is there as a left-to-right reading only; what needs its nodes raises `BudgetExceeded`."""

    def __init__(self, reader: FollowedReader) -> None:
        """Of a reading."""
        num_tokens = len(reader.token_class)
        given = {"length": reader.length, "token_class": reader.token_class, "num_classes": num_tokens, "reader": reader}
        for name, value in given.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Callable[..., FollowedCircuit], tuple[FollowedReader]]:
        reader = self.reader
        assert isinstance(reader, FollowedReader)
        return FollowedCircuit, (reader,)

    @property
    def blocks(self) -> tuple[object, ...]:  # type: ignore[override]
        """None.

        Raises:
            BudgetExceeded: always.
        """
        raise BudgetExceeded(NO_TABLE)

    positions = blocks  # type: ignore[assignment]
    final = blocks  # type: ignore[assignment]

    def to(self, device: torch.device | str) -> Circuit:
        """The same on a device."""
        reader = self.reader
        assert isinstance(reader, FollowedReader)
        moved = reader.to(device)
        assert isinstance(moved, FollowedReader)
        return FollowedCircuit(moved)
