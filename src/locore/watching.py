"""A call that takes long: how far it is, and how it is ended before its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from locore.kernel.errors import InvalidArgument, TimedOut
from locore.kernel.limits import watched

BETWEEN = 0.1  # seconds between two calls of `progress`


@dataclass(frozen=True)
class Progress:
    """How far a call is.

    Attributes:
        lm_tokens: spent so far; 0 while the constraint is compiled.
        most: what it may spend by what is known so far; it often needs less. None where that is not known.
        masked: what one masked text may take, which is the least that others ask for a text without a weight.
        seconds: since it began.
        sampling_seconds: of these since the first LM token.
    """

    lm_tokens: int
    most: int | None
    seconds: float
    sampling_seconds: float
    masked: int

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far, if all is spent; None where nothing was sampled yet, or nothing is known."""
        if not self.lm_tokens or self.most is None:
            return None
        return max(0.0, self.sampling_seconds * (self.most / self.lm_tokens - 1))


class Watch:
    """Watches one call.

    Attributes:
        progress: is told now and then how far it is.
        timeout: seconds after which the call ends, with what there is; None for none.
        most: LM tokens that the call may spend, where that is known.
        masked: LM tokens of one masked text, at most.
    """

    def __init__(
        self, progress: Callable[[Progress], None] | None, timeout: float | None, most: int | None, masked: int
    ) -> None:
        """From now on.

        Raises:
            InvalidArgument: the timeout is no positive number.
        """
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0):
            raise InvalidArgument(f"timeout must be a positive number of seconds, got {timeout!r}.")
        self.progress, self.timeout, self.most, self.masked = progress, timeout, most, masked
        self._start = time.monotonic()
        self._lm_tokens, self._sampling, self._next = 0, self._start, 0.0
        self._ended = self._over = False

    def end(self) -> None:
        """End the call at the next opportunity."""
        self._over = True

    def check(self) -> None:
        """Where work may be ended.

        Raises:
            TimedOut: it is to end; said once, since what there is has to be put together afterwards.
        """
        now = time.monotonic()
        if self.progress is not None and now >= self._next:
            self._next = now + BETWEEN
            sampling = now - self._sampling if self._lm_tokens else 0.0
            self.progress(Progress(self._lm_tokens, self.most, now - self._start, sampling, self.masked))
        self._over = self._over or (self.timeout is not None and now - self._start > self.timeout)
        if self._over and not self._ended:
            self._ended = True
            doing = f"after {self._lm_tokens:,} LM tokens" if self._lm_tokens else "while the constraint was compiled"
            raise TimedOut(
                f"ended {doing}, {now - self._start:.1f} s from the beginning, when nothing could be returned yet; give it "
                "more time, or a smaller budget, which says beforehand what is spent."
            )

    def spend(self, lm_tokens: int) -> None:
        """So many LM tokens more."""
        if not self._lm_tokens:
            self._sampling = time.monotonic()
        self._lm_tokens += lm_tokens
        if self.most is not None and self._lm_tokens > self.most:
            self.most = None  # what was known was wrong, and nothing else is

    def expect(self, lm_tokens: int) -> None:
        """So many LM tokens more, by what is known now."""
        self.most = self._lm_tokens + lm_tokens

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Over the work inside the `with` block."""
        with watched(self.check, self.spend, self.expect):
            yield


_watches: list[Watch] = []


@contextmanager
def long_call(
    progress: Callable[[Progress], None] | None, timeout: float | None, most: int | None, masked: int
) -> Iterator[Watch | None]:
    """A call that is watched, if anybody asks for it; and that `end_calls` can end."""
    if progress is None and timeout is None:
        yield None
        return
    watch = Watch(progress, timeout, most, masked)
    _watches.append(watch)
    try:
        with watch.watching():
            yield watch
    finally:
        _watches.remove(watch)


def end_calls() -> bool:
    """End all calls that are watched, with what they have; was there any?"""
    for watch in _watches:
        watch.end()
    return bool(_watches)
