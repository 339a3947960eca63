"""Requests that end worker processes: those that may have done so run alone, those that did are refused for a while.

Whoever computes beside others when a process dies is a suspect, and nobody knows which it was. Alone it shows.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence

from locore.server.api_errors import NO_RETRY, ApiError
from locore.server.task import Task

SECONDS = 300.0  # for which a request is remembered
KEPT_AWAY = 120.0  # seconds
DEATHS = 3  # so many within `SECONDS` keep a key away
MOST = 4096  # requests that are remembered; then the oldest is forgotten


class Offences:
    """What is remembered of them, in the memory of one server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._suspects: dict[str, float] = {}  # requests by digest, until when
        self._guilty: dict[str, float] = {}
        self._deaths: dict[str, list[float]] = {}  # by owner

    def admit(self, owner: str, digests: Sequence[str]) -> None:
        """Let in a request of these runs.

        Raises:
            ApiError: 429, one of them has ended a process a moment ago, or its owner has ended several.
        """
        now = self._clock()
        recent = [then for then in self._deaths.get(owner, []) if now - then < SECONDS]
        if owner and len(recent) >= DEATHS and now - recent[-1] < KEPT_AWAY:
            raise _refused(
                f"{len(recent)} requests of this key have each ended a worker process within {SECONDS / 60:g} minutes",
                "kept_away",
                recent[-1] + KEPT_AWAY - now,
            )
        blocked = [self._guilty[digest] for digest in digests if self._guilty.get(digest, 0.0) > now]
        if blocked:
            raise _refused("this request has ended a worker process a moment ago", "ended_a_worker", max(blocked) - now)

    def is_suspect(self, digest: str) -> bool:
        """Must it run alone?"""
        return self._suspects.get(digest, 0.0) > self._clock()

    def suspect(self, digest: str) -> None:
        """It was there when a process died, which others were too, or somebody else may have killed."""
        _remember(self._suspects, digest, self._clock() + SECONDS)

    def convict(self, owner: str, digest: str) -> None:
        """It has ended a process by itself."""
        now = self._clock()
        _remember(self._guilty, digest, now + SECONDS)
        if owner:  # without keys nobody knows whose it was
            self._deaths[owner] = [*self._deaths.get(owner, [])[-DEATHS:], now]

    def acquit(self, digest: str) -> None:
        """It was alone, and nothing happened."""
        self._suspects.pop(digest, None)


def _remember(times: dict[str, float], digest: str, until: float) -> None:
    times.pop(digest, None)
    times[digest] = until
    if len(times) > MOST:
        del times[next(iter(times))]


def _refused(what: str, code: str, seconds: float) -> ApiError:
    wait = math.ceil(seconds)
    message = f"{what}; it is taken again in {wait} seconds. Ask for less: fewer tokens or particles, a simpler constraint."
    return ApiError(429, message, code, headers={"Retry-After": str(wait), **NO_RETRY})


def digests_of(tasks: Sequence[Task]) -> list[str]:
    """Short names for what the runs of one request ask, whatever their seeds. They differ in nothing but prompts and seeds."""
    plain = tasks[0].to_json()
    common = hashlib.sha256(json.dumps({**plain, "prompt": None, "seed": None}, sort_keys=True).encode())
    digests = []
    for task in tasks:
        whole = common.copy()
        whole.update(json.dumps(task.prompt).encode())
        digests.append(whole.hexdigest())
    return digests
