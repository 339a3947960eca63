"""A draw that is read while it is made: what is certain of it, piece by piece, and what `locore.stream` gives.

`locore.kernel.certain` says what is certain, and why.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import copy_context
from functools import lru_cache
from queue import SimpleQueue

import torch
from torch import Tensor

from locore.answering import warn_of
from locore.evidence import Particles
from locore.kernel.certain import PrefixReader
from locore.kernel.errors import InvalidArgument, LocoreError
from locore.kernel.limits import watched
from locore.kernel.tokenizer import Tokenizer

MOST_BEGUN, MOST_READ = 256, 128  # beginnings that are followed together, and states that are read, for what is forced
NO_TEXT = -1  # the first byte of a token that ends the text or spells nothing
Begun = tuple[bytes, int, int]  # bytes beyond those that are shared, how many tokens were read, and the state then


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

    def hear(self, tokens: Tensor, reader: PrefixReader | None, states: Tensor | None, others: bytes | None) -> None:
        """All begins with one of Long[num, time], in the states Long[num], or with the bytes `others`."""
        contents = [self._tokenizer.text_bytes(y) for y in tokens.tolist()]
        shared = _shared(contents if others is None else [others, *contents])
        going = others is None and not any(end in self._tokenizer.eos_ids for end in tokens[:, -1:].flatten().tolist())
        if going and reader is not None and states is not None:
            begun = zip(contents, states.tolist(), strict=True)
            shared += self._forced(reader, {(content[len(shared) :], tokens.shape[1], state) for content, state in begun})
        self._settle(self._sure(shared))

    def common(self, tokens: Sequence[Tensor]) -> bytes:
        """What the texts of Long[num, time] each begin with, all of them."""
        return _shared([self._tokenizer.text_bytes(y) for part in tokens for y in part.tolist()])

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

    def _forced(self, reader: PrefixReader, begun: set[Begun]) -> bytes:
        """What all texts that go on from some beginnings begin with, as far as it is worth to look."""
        text, reads = b"", 0
        while begun:
            shared = _shared([content for content, _, _ in begun])
            text += shared
            begun = {(content[len(shared) :], position, state) for content, position, state in begun}
            ready = [each for each in begun if not each[0]]
            reads += len(ready)
            if not ready or len(begun) > MOST_BEGUN or reads > MOST_READ:
                break
            for content, position, state in ready:
                following = self._following(reader, position, state)
                if following is None:
                    return text
                begun.remove((content, position, state))
                begun |= following
        return text

    def _following(self, reader: PrefixReader, position: int, state: int) -> set[Begun] | None:
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
    differ = (place for place, (before, after) in enumerate(zip(first, last, strict=False)) if before != after)
    return first[: next(differ, min(len(first), len(last)))]


@lru_cache(maxsize=4)
def _first_bytes(token_bytes: tuple[bytes | None, ...], eos_ids: tuple[int, ...]) -> Tensor:
    """Long[vocab]: the first byte of each token."""
    first = torch.tensor([content[0] if content else NO_TEXT for content in token_bytes])
    first[list(eos_ids)] = NO_TEXT
    return first


class _Closed(BaseException):
    """Nobody reads on. No `Exception`, so that nothing on the way takes it for an error."""


class _Pipe:
    """From the thread that samples to the one that reads."""

    def __init__(self) -> None:
        self.parts: SimpleQueue[str | Particles | BaseException] = SimpleQueue()
        self.closed = threading.Event()

    def check(self) -> None:
        """Where the work may be ended."""
        if self.closed.is_set():
            raise _Closed

    def put(self, part: str) -> None:
        """A piece."""
        self.check()
        self.parts.put(part)


class Stream(Iterator[str]):
    """The pieces of one draw, in a `for` loop. The run begins with the first that is asked for.

    A context manager: leaving it, `close()`, or dropping the object ends the run.
    """

    def __init__(self, run: Callable[[Callable[[str], None]], Particles]) -> None:
        """Of what is sampled by `run`, which is given where to put pieces."""
        self._run, self._pipe = run, _Pipe()
        self._begun = False
        self._particles: Particles | None = None
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """All pieces so far."""
        return "".join(self._pieces)

    @property
    def particles(self) -> Particles:
        """What the text was drawn from, once it has ended: its verdict, its report, what it cost.

        Raises:
            InvalidArgument: the text has not ended.
        """
        if self._particles is None:
            raise InvalidArgument("the particles of a stream are there when its last piece has been read; read on.")
        return self._particles

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        if self._particles is not None or self._pipe.closed.is_set():
            raise StopIteration
        if not self._begun:
            self._begun = True
            context = copy_context()
            threading.Thread(target=context.run, args=(_sampled, self._run, self._pipe), daemon=True).start()
        part = self._pipe.parts.get()
        if isinstance(part, str):
            self._pieces.append(part)
            return part
        if isinstance(part, BaseException):
            self.close()
            raise part
        self._particles = part
        warn_of(part, stacklevel=2)
        raise StopIteration

    def close(self) -> None:
        """End the run, wherever it is."""
        self._pipe.closed.set()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def _sampled(run: Callable[[Callable[[str], None]], Particles], pipe: _Pipe) -> None:
    """In a thread of its own, which holds no stream: one that nobody holds is closed."""
    try:
        with watched(pipe.check):
            pipe.parts.put(run(pipe.put))
    except BaseException as error:
        pipe.parts.put(error)
