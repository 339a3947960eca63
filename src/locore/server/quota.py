"""What each key may ask for in a minute: requests, and LM tokens. Buckets that fill up again at an even rate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from locore.server.api_errors import ApiError

MINUTE = 60.0
ROUNDING = 1e-6  # seconds
MOST = 4096  # owners that are remembered


class Bucket:
    """So many in a minute, and as many at once; what was not foreseen may be taken too, and is owed."""

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = per_minute
        self._clock = clock
        self._left, self._seen = per_minute, clock()

    def left(self) -> float:
        """How many there are now; negative where some are owed."""
        if self._most == math.inf:
            return math.inf
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._seen) * self._most / MINUTE)
        self._seen = now
        return self._left

    def take(self, number: float) -> None:
        """Take so many, whether they are there or not."""
        if self._most < math.inf:
            self.left()
            self._left -= number

    def seconds_until(self, number: float) -> float:
        """Until there are so many."""
        return 0.0 if self._most == math.inf else max(0.0, (number - self.left()) * MINUTE / self._most)


class Quotas:
    """Of all keys; without limits everybody may ask for everything."""

    def __init__(self, requests: int | None, lm_tokens: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Of each key, in a minute; None for no limit."""
        self._requests, self._lm_tokens = requests, lm_tokens
        self._clock = clock
        self._buckets: dict[str, tuple[Bucket, Bucket]] = {}

    def admit(self, owner: str, runs: int) -> None:
        """Count a request of so many runs.

        Raises:
            ApiError: 429, this key has asked for too much in the last minute; it says when to come again.
        """
        requests, lm_tokens = self._of(owner)
        # LM tokens are counted when they have been spent, so one is enough to begin with.
        seconds = max(
            requests.seconds_until(runs if self._requests is None else min(runs, self._requests)), lm_tokens.seconds_until(1)
        )
        if seconds > ROUNDING:
            raise ApiError(
                429,
                "this key has asked for as much as it may in a minute; try again later.",
                "rate_limit_exceeded",
                headers={"Retry-After": str(math.ceil(seconds))},
            )
        requests.take(runs)

    def spend(self, owner: str, lm_tokens: int) -> None:
        """Count what a run has cost."""
        self._of(owner)[1].take(lm_tokens)

    def _of(self, owner: str) -> tuple[Bucket, Bucket]:
        if owner not in self._buckets:
            if len(self._buckets) >= MOST:  # keys are few, addresses may be many
                del self._buckets[next(iter(self._buckets))]
            limits = (self._requests or math.inf, self._lm_tokens or math.inf)
            self._buckets[owner] = Bucket(limits[0], self._clock), Bucket(limits[1], self._clock)
        return self._buckets[owner]
