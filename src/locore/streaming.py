"""A draw that is read while it is made: what `locore.stream` gives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from queue import SimpleQueue

from locore.answering import warn_of
from locore.evidence import Particles
from locore.kernel.errors import InvalidArgument
from locore.kernel.limits import watched


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
