"""Reading and compiling constraints in processes of their own: what takes long is not in the way of passes, or of the worker.

A worker forks once before it has threads or a model. That process is told the tokenizer, and forks for each task, which so
begins at once, may end at any time, and leaves nothing behind. Bytes come and go through a socket of each; when the
worker's end is closed, the task ends too.
"""

from __future__ import annotations

import gc
import io
import math
import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar

from locore.kernel.errors import BudgetExceeded, LocoreError
from locore.kernel.limits import Limits, held_back, may_stop, watched
from locore.kernel.tokenizer import Tokenizer
from locore.server.settings import CAN_FORK

LOOK = 0.02  # seconds between looks at whether somebody still waits
UNNOTICED = 0.25  # seconds of a processor that it may take in place, which is enough for most
NICE = 5  # of its process: passes go first
SLACK = 1.5  # times the bytes that it may take: where its process is ended by the system
LATE = 2.0  # seconds after its time that it is
ENDED = "reading or compiling it was ended by the system, as is what takes too much memory or time; ask for less."
Value = TypeVar("Value")  # a constraint that was read, or a circuit


class TooLong(BaseException):
    """It takes longer than a moment. No `Exception`, so that nothing on the way takes it for an error."""


class Pickler(pickle.Pickler):
    """Of what refers to one tokenizer, which the other side has already."""

    def __init__(self, file: io.BytesIO, tokenizer: Tokenizer) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._names = {id(tokenizer): "tokenizer", id(tokenizer.token_bytes): "token_bytes"}

    def persistent_id(self, obj: Any) -> str | None:
        """The name of what is not written."""
        return self._names.get(id(obj))


class Unpickler(pickle.Unpickler):
    """The other side."""

    def __init__(self, file: io.BytesIO, tokenizer: Tokenizer) -> None:
        super().__init__(file)
        self._tokenizer = tokenizer

    def persistent_load(self, pid: Any) -> Any:
        """What has this name."""
        return self._tokenizer if pid == "tokenizer" else self._tokenizer.token_bytes


def dumped(value: Any, tokenizer: Tokenizer) -> bytes:
    """Bytes of which `loaded` makes an equal value."""
    file = io.BytesIO()
    Pickler(file, tokenizer).dump(value)
    return file.getvalue()


def loaded(content: bytes, tokenizer: Tokenizer) -> Any:
    """What `dumped` was given."""
    return Unpickler(io.BytesIO(content), tokenizer).load()


@dataclass(frozen=True)
class Done(Generic[Value]):
    """What became of it.

    Attributes:
        value: None where there is none.
        error: why there is none; None: it cannot be sent, and is to be made where it is wanted.
        seconds: of a processor.
    """

    value: Value | None
    error: LocoreError | None
    seconds: float


class Apart:
    """Has made elsewhere what takes long.

    Args:
        line: to the process that forks; None: all is made in place.
        tokenizer: of the model.
        limits: of each.
        places: of those that are made beside each other.
    """

    def __init__(self, line: socket.socket | None, tokenizer: Tokenizer, limits: Limits, places: int) -> None:
        self._line, self._tokenizer, self._limits, self._places = line, tokenizer, limits, places
        self._changing = threading.Condition()
        self._owners: set[str] = set()  # for whom something is made: one of each
        if line is not None:
            try:
                content = pickle.dumps(tokenizer)
                with self._forked(line) as first:
                    first.send_bytes(content)
            except Exception:  # a tokenizer of somebody's own
                self._line = None

    def compute(self, owner: str, make: Callable[[], Value], charge: Callable[[float], None]) -> Value:
        """What `make` returns, in place if it takes no longer than a moment.

        Args:
            owner: who wants it; of each one at a time is made apart.
            charge: is told the seconds of a processor that it took elsewhere.

        Raises:
            LocoreError: as `make`, or `BudgetExceeded` where the system has ended it.
        """
        end = time.thread_time() + UNNOTICED

        def check() -> None:
            if time.thread_time() > end:
                raise TooLong

        if self._line is None:
            return make()
        try:
            with watched(check):
                return make()
        except TooLong:
            pass
        with self._place(owner):
            done = self._done(make)
        charge(done.seconds)
        if done.error is not None:
            raise done.error
        return make() if done.value is None else done.value

    @contextmanager
    def _place(self, owner: str) -> Iterator[None]:
        """Once there is one; the time until then is nobody's."""
        begun = time.monotonic()
        while not self._has_entered(owner):
            may_stop()
        held_back(time.monotonic() - begun)
        try:
            yield
        finally:
            with self._changing:
                self._owners.discard(owner)
                self._changing.notify_all()

    def _has_entered(self, owner: str) -> bool:
        with self._changing:
            is_free = owner not in self._owners and len(self._owners) < self._places
            if is_free:
                self._owners.add(owner)
            else:
                self._changing.wait(LOOK)
            return is_free

    def _done(self, make: Callable[[], Value]) -> Done[Value]:
        try:
            asked = dumped((make, self._limits), self._tokenizer)
        except Exception:  # a constraint of somebody's own
            return Done(None, None, 0.0)
        assert self._line is not None  # or all is made in place
        try:
            with self._forked(self._line) as line:
                line.send_bytes(asked)
                while not line.poll(LOOK):
                    may_stop()
                done: Done[Value] = loaded(line.recv_bytes(), self._tokenizer)
                return done
        except EOFError:
            return Done(None, BudgetExceeded(ENDED), 0.0)
        except OSError:  # the process that forks is gone
            return Done(None, None, 0.0)

    @contextmanager
    def _forked(self, line: socket.socket) -> Iterator[Connection]:
        """The line to a new process, which ends with it."""
        ours, theirs = socket.socketpair()
        with Connection(ours.detach()) as connection:
            with theirs:
                socket.send_fds(line, [b"."], [theirs.fileno()])
            yield connection


# In the process that forks, and in those that it forks.


def forking() -> socket.socket | None:
    """The line to a process that forks; None where that cannot be done. To be called before anything begins a thread."""
    if not CAN_FORK:
        return None
    ours, theirs = socket.socketpair()
    if os.fork():
        theirs.close()
        return ours
    ours.close()
    with open(os.devnull, "r+b") as nothing:  # the lines of the worker are its own
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    try:
        with theirs:
            _fork_for_each(theirs)
    finally:
        os._exit(0)


def look_for_garbage() -> None:
    """From now on, and not in what is there already."""
    gc.freeze()
    gc.enable()


def _fork_for_each(line: socket.socket) -> None:
    """A process for each socket that comes, until the worker is gone. The first one has the tokenizer."""
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    look_for_garbage()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forked ones
    tokenizer: Tokenizer | None = None
    while True:
        _, handles, _, _ = socket.recv_fds(line, 1, 1)
        if not handles:
            return
        with Connection(handles[0]) as given:
            if tokenizer is None:
                tokenizer = pickle.loads(given.recv_bytes())
            elif os.fork() == 0:
                line.close()
                _make(given, tokenizer)
                os._exit(0)


def _make(line: Connection, tokenizer: Tokenizer) -> None:
    """In a process of its own: one circuit, or one constraint."""
    os.nice(NICE)
    asked = line.recv_bytes()
    value, error = None, None  # type: Any, LocoreError | None
    try:
        make, limits = loaded(asked, tokenizer)
        _bound(limits)
        with watched(_wanted(line)):
            value = make()
    except LocoreError as raised:
        error = raised
    except MemoryError:
        error = BudgetExceeded(ENDED)
    except Exception:  # it will happen again in place, where it is told
        pass
    seconds = time.process_time()
    try:
        done = dumped(Done(value, error, seconds), tokenizer)
    except Exception:  # it holds what no other process can have
        done = dumped(Done(None, None, seconds), tokenizer)
    with suppress(OSError):
        line.send_bytes(done)


def _wanted(line: Connection) -> Callable[[], None]:
    """Ends the process once the other end is closed; what passes take of the processor is no time of its own."""
    waited = time.monotonic() - time.process_time()

    def check() -> None:
        nonlocal waited
        if line.poll():  # nothing else comes
            os._exit(0)
        before, waited = waited, time.monotonic() - time.process_time()
        held_back(waited - before)

    return check


def _bound(limits: Limits) -> None:
    """Where steps do not ask whether it is too much, the system ends them."""
    import resource  # which not every system has

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = int(pages * os.sysconf("SC_PAGE_SIZE") + SLACK * limits.memory)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    seconds = math.ceil(time.process_time() + limits.seconds + LATE)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
