"""Tokens and their bytes: exact spelling, encoding as a continuation, canonical tokenisation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from reprlib import repr as shortened
from typing import Any, ClassVar, Protocol

from locore.kernel import plugins
from locore.kernel.chat import Chat, plain_messages
from locore.kernel.errors import InvalidArgument, LocoreError, MissingTemplate
from locore.kernel.plugins import cached_property

_UNDECODABLE = re.compile("([\udc80-\udcff]+)")


class Codec(Protocol):
    """Encodes as a tokenizer of others does."""

    @property
    def source(self) -> str:
        """All that encoding depends on; equal sources encode alike."""

    @property
    def chat_source(self) -> str | None:
        """What the writing of a chat depends on beside that; None without a template."""

    def encode(self, text: str) -> list[int]:
        """Ids of a continuation: no BOS, no invented space, "</s>" is four characters."""

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a prompt, with the special tokens that the tokenizer itself adds."""

    def encode_chat(self, messages: object, options: Mapping[str, Any] | None = None) -> list[int]:
        """Ids of messages as its template writes them; see `Tokenizer.encode_chat`."""


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """The vocabulary of a model: what each token spells, and how a text is cut into tokens.

    Immutable; two tokenizers are equal when their fingerprints are.

    Attributes:
        vocab_size: number of columns of the model's logits.
        token_bytes: bytes of each token; None for special tokens and columns without a token.
        eos_ids: tokens that end a text; the first is the padding after an end.
        bos_ids: what a model reads when its prompt is empty; () if it has no such token.
    """

    vocab_size: int
    token_bytes: tuple[bytes | None, ...] = field(repr=False)
    eos_ids: tuple[int, ...] = ()
    bos_ids: tuple[int, ...] = ()
    _codec: Codec | None = field(default=None, repr=False)
    # What `from_huggingface` does: a module that knows `transformers` puts it here.
    made_of_fast: ClassVar[Callable[[Any, int | None, Iterable[int]], Tokenizer]]

    def __post_init__(self) -> None:
        if self.vocab_size < 1:
            raise InvalidArgument(f"A vocabulary needs at least one token, not {self.vocab_size}.")
        if len(self.token_bytes) != self.vocab_size:
            raise InvalidArgument(f"{self.vocab_size} tokens need as many entries of token_bytes, not {len(self.token_bytes)}.")
        for name, ids in (("eos_ids", self.eos_ids), ("bos_ids", self.bos_ids)):
            wrong = [i for i in ids if not 0 <= i < self.vocab_size]
            if wrong:
                raise InvalidArgument(f"{name} has {wrong[0]}, but ids go from 0 to {self.vocab_size - 1}.")

    @classmethod
    def from_tokens(cls, token_bytes: Sequence[bytes | str | None], eos_ids: Iterable[int] = ()) -> Tokenizer:
        """A tokenizer of these tokens, which encodes by greedy longest match.

        Args:
            token_bytes: bytes (or text) of each token, None for a special one.
            eos_ids: tokens that end a text; their bytes are ignored.
        """
        ends = tuple(dict.fromkeys(eos_ids))
        spelled = [t.encode() if isinstance(t, str) else t for t in token_bytes]
        table = tuple(None if i in ends else t for i, t in enumerate(spelled))
        return cls(len(table), table, ends)

    @classmethod
    def integers(cls, vocab_size: int, eos_ids: Iterable[int] = ()) -> Tokenizer:
        """A vocabulary of bare ids. Operations on text raise `LocoreError`."""
        return cls(vocab_size, (None,) * vocab_size, tuple(dict.fromkeys(eos_ids)))

    @classmethod
    def from_huggingface(cls, tokenizer: Any, vocab_size: int | None = None, eos_ids: Iterable[int] = ()) -> Tokenizer:
        """Any fast tokenizer of the byte-level or SentencePiece kind.

        Args:
            tokenizer: a fast tokenizer of `transformers`.
            vocab_size: columns of the model's logits; the tokenizer's own size by default.
            eos_ids: ends that the model declares; the tokenizer's own end is added to them.

        Raises:
            LocoreError: the tokenizer is slow, or of a kind whose tokens have no exact bytes.
        """
        plugins.load(plugins.TOKENIZERS)
        return cls.made_of_fast(tokenizer, vocab_size, eos_ids)

    @property
    def has_text(self) -> bool:
        """Whether any token spells something."""
        return any(self.token_bytes)

    def encode(self, text: str) -> list[int]:
        """Ids of a text as a continuation: no BOS and no invented space.

        The tokenizer's own answer is used when it spells the text exactly; else (a text that its normaliser would change) the
        greedy longest match, which is exact too.
        """
        return self._encode_bytes(_utf8(text))

    def tokenize(self, text: str) -> list[int]:
        """The same as `encode`."""
        return self.encode(text)

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a text at the start: with the special tokens that the tokenizer itself adds."""
        if self._codec is not None:
            _utf8(text)
            return self._codec.encode_prompt(text) or list(self.bos_ids)
        return self.encode(text) if text else []

    def encode_chat(self, messages: Chat, options: Mapping[str, Any] | None = None) -> list[int]:
        """Ids of a chat by the model's own template, up to where the answer begins.

        Where the last message is of the assistant, the answer goes on from it. Special tokens are only those that the template
        writes; what a message spells like one is text. Without such a message the ids are those of `transformers`'
        `apply_chat_template`, with `add_generation_prompt`, or `continue_final_message` where the answer goes on.

        Args:
            messages: each with `role` (system, developer, user or assistant) and `content` (a text, or a list of parts {"type":
                "text", "text": ...}), and nothing else.
            options: values of variables of the template, such as {"enable_thinking": False}.

        Raises:
            MissingTemplate: there is none.
            InvalidArgument: these are no messages; the template has no such variable; or it refuses them, leaves one out, or
                looks into a message that spells a special token.
        """
        if self._codec is None:
            plain_messages(messages)
            raise MissingTemplate("this model has no tokenizer with a chat template; give a plain prompt, or token ids.")
        return self._codec.encode_chat(messages, options)

    def text_bytes(self, ids: Iterable[int]) -> bytes:
        """Bytes of the tokens before the first EOS; special tokens spell nothing."""
        self._require_text()
        parts: list[bytes] = []
        for i in ids:
            if i in self.eos_ids:
                break
            parts.append(self._bytes_of(int(i)) or b"")
        return b"".join(parts)

    def decode(self, ids: Iterable[int]) -> str:
        """`text_bytes` as text; what is no UTF-8 becomes U+FFFD, a leading space stays."""
        return self.text_bytes(ids).decode("utf-8", errors="replace")

    def canonize(self, ids: Iterable[int], prompt: Iterable[int] = ()) -> tuple[int, ...]:
        """Canonical ids of the same text after this prompt, without EOS.

        Prompt and text are encoded as one. If that begins with the prompt's own ids, the rest is canonical. If not (a token
        would straddle the boundary, which no continuation can contain), the text is encoded on its own. Of a prompt only what
        follows its last special token matters. Bytes that are no UTF-8, such as a character cut at the horizon, are spelled by
        greedy longest match.

        Args:
            ids: token ids; those from the first EOS on are ignored.
            prompt: token ids of the prompt.
        """
        data = self.text_bytes(ids)
        head = self._head(prompt)
        after = self._encode_after(head, data)
        return tuple(self._encode_bytes(data) if after is None else after)

    def may_be_canonical(self, ids: Sequence[int], prompt: Iterable[int] = ()) -> bool:
        """False only if no text after this prompt whose tokens begin with these ids has them as its canonical ids.

        The canonical ids of the beginning of a text are the beginning of its canonical ids, for byte-pair encoding, for the
        best path of a unigram model and for greedy matching, up to the last id: the pieces that a text is cut into before that
        (words, say, and "'ll") may depend on what follows. So the last id is not judged, nor is what ends within a character.

        Args:
            ids: token ids, without an end of sequence.
            prompt: token ids of the prompt.
        """
        data = self.text_bytes(ids)
        try:
            data.decode("utf-8")
        except UnicodeDecodeError:
            return True
        judged = list(ids[:-1])
        after = self._encode_after(self._head(prompt), data)
        if after is not None and after[: len(judged)] == judged:
            return True
        # By itself, or greedily, if what follows takes the boundary, or can be spelled in no other way.
        return self._encode_bytes(data)[: len(judged)] == judged or list(self._longest_match(data))[: len(judged)] == judged

    def _head(self, prompt: Iterable[int]) -> list[int]:
        """What follows the last special token of a prompt."""
        ids = [int(i) for i in prompt]
        special = [at for at, i in enumerate(ids) if self._bytes_of(i) is None]
        return ids[special[-1] + 1 :] if special else ids

    def _encode_after(self, head: list[int], data: bytes) -> list[int] | None:
        """Ids of bytes that are encoded as one with what is before them; None if a token would straddle the boundary."""
        before = b"".join(self.token_bytes[i] or b"" for i in head)
        whole = self._encode_bytes(before + data)
        return whole[len(head) :] if whole[: len(head)] == head else None

    def fingerprint(self) -> str:
        """A sha256 of everything that encoding and decoding depend on, in hexadecimal."""
        return self._fingerprint

    def chat_fingerprint(self) -> str | None:
        """A sha256 of the chat template and the special tokens that it knows of; None for a model without a template."""
        source = None if self._codec is None else self._codec.chat_source
        return None if source is None else hashlib.sha256(source.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tokenizer):
            return NotImplemented
        return self is other or self._fingerprint == other._fingerprint

    def __hash__(self) -> int:
        return hash(self._fingerprint)

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(repr((self.vocab_size, self.eos_ids, self.bos_ids)).encode())
        for token in self.token_bytes:
            digest.update(b"-" if token is None else b"%d:%s" % (len(token), token))
        digest.update(b"" if self._codec is None else self._codec.source.encode())
        return digest.hexdigest()

    @cached_property
    def _first_id(self) -> dict[bytes, int]:
        ids: dict[bytes, int] = {}
        for i, token in enumerate(self.token_bytes):
            if token:
                ids.setdefault(token, i)
        return ids

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._first_id), default=0)

    def _bytes_of(self, token: int) -> bytes | None:
        if not 0 <= token < self.vocab_size:
            raise InvalidArgument(f"Token id {token} is out of range: ids go from 0 to {self.vocab_size - 1}.")
        return self.token_bytes[token]

    def _require_text(self) -> None:
        if not self.has_text:
            raise LocoreError(
                "This tokenizer has bare ids and no text. Use token constraints, or make it with Tokenizer.from_tokens."
            )

    def _encode_bytes(self, data: bytes) -> list[int]:
        self._require_text()
        ids: list[int] = []
        for piece in _UNDECODABLE.split(data.decode("utf-8", errors="surrogateescape")):
            ids.extend(self._encode_piece(piece) if piece else [])
        return ids

    def _encode_piece(self, piece: str) -> list[int]:
        data = piece.encode("utf-8", errors="surrogateescape")
        if self._codec is not None and not _UNDECODABLE.match(piece):
            ids = self._codec.encode(piece)
            if self._spell(ids) == data:
                return ids
        return list(self._longest_match(data))

    def _spell(self, ids: list[int]) -> bytes | None:
        """Bytes of these ids; None if one of them has no bytes."""
        parts = [self.token_bytes[i] if i < self.vocab_size else None for i in ids]
        return None if None in parts else b"".join(p or b"" for p in parts)

    def _longest_match(self, data: bytes) -> Iterator[int]:
        at = 0
        while at < len(data):
            for size in range(min(self._longest, len(data) - at), 0, -1):
                token = self._first_id.get(data[at : at + size])
                if token is not None:
                    break
            else:
                raise InvalidArgument(f"No tokens spell {shortened(data[at:])} (byte {at}); use what the vocabulary can spell.")
            yield token
            at += size


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"The text has a lone surrogate at character {error.start}, which has no UTF-8.") from error
