"""A finished sequence of token ids, read plainly: its text, its padding, its special tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from locore.kernel.errors import InvalidArgument, InvalidConstraint
from locore.kernel.plugins import cached_property


class TokenizerLike(Protocol):
    """What constraints ask of a tokenizer; `locore.kernel.tokenizer.Tokenizer` has it."""

    @property
    def vocab_size(self) -> int:
        """The number of token ids."""

    @property
    def token_bytes(self) -> Sequence[bytes | None]:
        """The bytes of each token; None for special tokens and ids without a token."""

    @property
    def eos_ids(self) -> Sequence[int]:
        """The ids that end a text; the first is also the padding."""

    def encode(self, text: str) -> Sequence[int]:
        """The ids of a text as a continuation."""

    def text_bytes(self, ids: Sequence[int]) -> bytes:
        """The bytes of the tokens before the first end of sequence."""


class TokenSequence:
    """`length` token ids, of which those after the first end of sequence are padding.

    Args:
        tokens: ids in 0..vocab_size-1.
        tokenizer: None for a bare vocabulary, which has no end of sequence and no text.

    Raises:
        InvalidArgument: an id lies outside the vocabulary.
    """

    def __init__(self, tokens: Iterable[int], tokenizer: TokenizerLike | None) -> None:
        self.tokens = tuple(int(token) for token in tokens)
        self.tokenizer = tokenizer
        limit = max(self.tokens, default=0) + 1 if tokenizer is None else tokenizer.vocab_size
        for position, token in enumerate(self.tokens):
            if not 0 <= token < limit:
                raise InvalidArgument(f"token {token} at position {position} is outside the vocabulary of {limit}")

    @property
    def known_tokenizer(self) -> TokenizerLike:
        """The tokenizer; `InvalidConstraint` when there is none."""
        if self.tokenizer is None:
            raise InvalidConstraint("a constraint about text needs a tokenizer; pass one")
        return self.tokenizer

    @cached_property
    def end(self) -> int:
        """How many tokens come before the first end of sequence."""
        eos_ids = () if self.tokenizer is None else self.tokenizer.eos_ids
        return next((i for i, token in enumerate(self.tokens) if token in eos_ids), len(self.tokens))

    @property
    def padded(self) -> bool:
        """Does nothing but padding follow the first end of sequence?"""
        rest = self.tokens[self.end + 1 :]
        return not rest or set(rest) == {self.known_tokenizer.eos_ids[0]}

    @property
    def has_special(self) -> bool:
        """Is there a token without bytes before the end?"""
        if self.tokenizer is None:
            return False
        token_bytes = self.tokenizer.token_bytes
        return any(token_bytes[token] is None for token in self.tokens[: self.end])

    @property
    def is_broken(self) -> bool:
        """Is the text no UTF-8, because it ends within a character or has bytes that are none?"""
        try:
            self.text.decode()
        except UnicodeDecodeError:
            return True
        return False

    @property
    def whole_text(self) -> str | None:
        """The text; None where it is no UTF-8."""
        return None if self.is_broken else self.text.decode()

    @cached_property
    def text(self) -> bytes:
        """The bytes of the tokens before the end."""
        return self.known_tokenizer.text_bytes(self.tokens)


def is_written(text: str) -> bool:
    """Has a text UTF-8 bytes?"""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
