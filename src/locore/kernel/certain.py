"""What is certain of a draw while it is made: samplers say what they can still return, and of that all texts begin alike.

The draw is the one that would be made if nobody listened: weighted sequences, of which one is chosen by its weight once all
weights are known. Until then any of them that can still come back with a positive weight may be the one. So what all of them
begin with is certain, and nothing beyond it is: two of them differ there, and each has its chance. What can come back only
grows fewer, so nothing is ever taken back. And as listening changes no random number and no choice, the pieces together are
that very draw, and have its law.

A sampler of one particle settles a token with each step; a population what its prefixes have in common; repetitions that are
pooled what the last one has in common with all before it. A text that may yet be refused is never certain, however likely it is
to pass: whoever shows it earlier takes it back now and then, or shows texts that the constraint's law has not. Before the first
token all is certain that the constraint leaves no choice about, such as `{"name": "`.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from locore.kernel.errors import LocoreError
from locore.kernel.tokenizer import Tokenizer

MOST_BEGUN, MOST_READ = 256, 128  # beginnings that are followed together, and states that are read, for what is forced
NO_TEXT = -1  # the first byte of a token that ends the text or spells nothing
Begun = tuple[bytes, int, int]  # bytes beyond those that are shared, how many tokens were read, and the state then


class Reading(Protocol):
    """Of a constraint from left to right, as `circuits.LeftToRight`."""

    @property
    def length(self) -> int:
        """Number of positions."""

    def allowed_tokens(self, position: int, states: Tensor, look_ahead: bool = True) -> Tensor:
        """Bool[batch, vocab]: tokens that may come at a position."""

    def step(self, position: int, states: Tensor, tokens: Tensor, look_ahead: bool = True) -> Tensor:
        """Long[batch]: states after one token more."""


class Certain:
    """Hears what can still come back from a run, and tells the beginning of its draw piece by piece.

    Attributes:
        said: all that was told so far.
    """

    def __init__(self, tokenizer: Tokenizer, sure: Callable[[bytes], bytes], tell: Callable[[str], None]) -> None:
        """Of texts that are cut, of which `sure` says what stays of a beginning; `tell` is called with each piece, none of them
        empty.
        """
        self._tokenizer, self._tell, self._sure = tokenizer, tell, sure
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._content = b""  # of the text that is cut
        self.said = ""

    def hear(self, tokens: Tensor, reader: Reading | None, states: Tensor | None, others: bytes | None) -> None:
        """All begins with one of Long[num, time], in the states Long[num], or with the bytes `others`."""
        contents = [self._tokenizer.text_bytes(y) for y in tokens.tolist()]
        shared = _shared(contents if others is None else [others, *contents])
        going = others is None and not any(end in self._tokenizer.eos_ids for end in tokens[:, -1:].flatten().tolist())
        if going and reader is not None and states is not None:
            begun = zip(contents, states.tolist(), strict=True)
            shared += self._forced(reader, {(content[len(shared) :], tokens.shape[1], state) for content, state in begun})
        self._settle(self._sure(shared))

    def common(self, tokens: Tensor) -> bytes:
        """What the texts of Long[num, time] begin with."""
        return _shared([self._tokenizer.text_bytes(y) for y in tokens.tolist()])

    def end(self, content: bytes) -> None:
        """The draw itself, which is cut.

        Raises:
            LocoreError: it is not what was said to be certain, a bug.
        """
        if not content.startswith(self._content):
            raise LocoreError(
                f"internal error: {self._content!r} was said to be certain, and the text is {content!r}; please report this."
            )
        self._settle(content, final=True)

    def _settle(self, content: bytes, final: bool = False) -> None:
        if len(content) <= len(self._content) and not final:
            return
        piece = self._decoder.decode(content[len(self._content) :], final)  # which keeps half a character back
        self._content = content
        if piece:
            self.said += piece
            self._tell(piece)

    def _forced(self, reader: Reading, begun: set[Begun]) -> bytes:
        """What all texts that go on from some beginnings begin with, as far as it is worth to look."""
        found, reads = b"", 0
        while begun:
            shared = _shared([content for content, _, _ in begun])
            found += shared
            begun = {(content[len(shared) :], position, state) for content, position, state in begun}
            ready = [each for each in begun if not each[0]]
            reads += len(ready)
            if not ready or len(begun) > MOST_BEGUN or reads > MOST_READ:
                break
            for content, position, state in ready:
                following = self._following(reader, position, state)
                if following is None:
                    return found
                begun.remove((content, position, state))
                begun |= following
        return found

    def _following(self, reader: Reading, position: int, state: int) -> set[Begun] | None:
        """A token more; None where the text may end here, or go on with different bytes."""
        if position == reader.length:
            return None
        tokens = reader.allowed_tokens(position, torch.tensor([state]))[0].nonzero()[:, 0]
        first = _first_bytes(self._tokenizer.token_bytes, self._tokenizer.eos_ids)[tokens]
        if len(tokens) and (int(first[0]) == NO_TEXT or bool((first != first[0]).any())):
            return None
        states = reader.step(position, torch.full_like(tokens, state), tokens)
        contents = [self._tokenizer.text_bytes([token]) for token in tokens.tolist()]
        return {(content, position + 1, state) for content, state in zip(contents, states.tolist(), strict=True)}


def _shared(contents: Collection[bytes]) -> bytes:
    """The longest beginning of all; in order, the first and the last of them differ the soonest."""
    first, last = min(contents), max(contents)
    differ = (place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return first[: next(differ, min(len(first), len(last)))]


@lru_cache(maxsize=4)
def _first_bytes(token_bytes: tuple[bytes | None, ...], eos_ids: tuple[int, ...]) -> Tensor:
    """Long[vocab]: the first byte of each token."""
    first = torch.tensor([content[0] if content else NO_TEXT for content in token_bytes])
    first[list(eos_ids)] = NO_TEXT
    return first


@dataclass(frozen=True)
class _Scope:
    """Who hears what is said, and what else the run can return: texts that begin with these bytes."""

    certain: Certain
    others: bytes | None = None


_waiting: ContextVar[Certain | None] = ContextVar("who listens to the next call", default=None)
_scope: ContextVar[_Scope | None] = ContextVar("who listens", default=None)


@contextmanager
def listening(certain: Certain) -> Iterator[None]:
    """To the one call inside the `with` block, and to none that it makes itself."""
    token = _waiting.set(certain)
    try:
        yield
    finally:
        _waiting.reset(token)


@contextmanager
def heard() -> Iterator[None]:
    """Around a call, which is heard by who waits for one."""
    certain = _waiting.get()
    waiting, scope = _waiting.set(None), _scope.set(None if certain is None else _Scope(certain))
    try:
        yield
    finally:
        _scope.reset(scope)
        _waiting.reset(waiting)


def is_heard() -> bool:
    """Does anybody listen to the run?"""
    return _scope.get() is not None


@contextmanager
def apart() -> Iterator[None]:
    """Around what is a part of a run, or only prepares it: what is said inside says nothing of the whole."""
    token = _scope.set(None)
    try:
        yield
    finally:
        _scope.reset(token)


@contextmanager
def beside(finished: Sequence[Tensor]) -> Iterator[None]:
    """Around the last part of a run, which can also return sequences Long[num, length] that are there already."""
    scope, known = _scope.get(), [tokens for tokens in finished if len(tokens)]
    if scope is not None and known:
        scope = _Scope(scope.certain, _shared([scope.certain.common(tokens) for tokens in known]))
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)


def only(tokens: Tensor, reader: Reading | None = None, states: Tensor | None = None) -> None:
    """What can still be returned begins with one of Long[num, time], in the states Long[num] of a constraint's reading."""
    scope = _scope.get()
    if scope is not None and len(tokens):
        scope.certain.hear(tokens, reader, states, scope.others)
