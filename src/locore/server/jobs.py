"""A request while it waits and is computed: it ends exactly once, with a result or an error."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable
from typing import Any

from locore.server.errors import ApiError, timed_out

INDIVIDUAL = ("n", "seed", "return_particles")  # what may differ between requests that share a run
SHARED_SAMPLERS = (None, "auto", "exact", "masked")  # see `locore.server.compute`
_numbers = itertools.count(1)


class Job:
    """One request.

    Attributes:
        number: its own among all of this server.
        settings: what to compute, as plain JSON.
        answer: a future of the result; an `ApiError` is its exception.
    """

    def __init__(self, settings: dict[str, Any], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.number = next(_numbers)
        self.settings = settings
        self.answer: asyncio.Future[dict[str, Any]] = loop.create_future()
        # Nobody may be left to fetch it.
        self.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        self._deadline = time.monotonic() + seconds
        timer = loop.call_later(seconds, lambda: self.fail(timed_out(seconds)))
        self.when_done(timer.cancel)

    @property
    def done(self) -> bool:
        """Has it an answer, or does nobody wait for one?"""
        return self.answer.done()

    @property
    def overdue(self) -> float:
        """Seconds since its deadline, negative before it."""
        return time.monotonic() - self._deadline

    def when_done(self, call: Callable[[], object]) -> None:
        """Call this once it has its answer."""
        self.answer.add_done_callback(lambda _: call())

    def message(self) -> dict[str, Any]:
        """What the worker is sent."""
        return {"id": self.number, **self.settings}

    def key(self) -> str | None:
        """Equal for requests that may share a run; None for one that runs by itself.

        Independent particles of one run are divided, so such a request must not ask for its own seed or budget. An exact
        posterior is the same for every seed.
        """
        sampler = self.settings["sampler"]
        if self.settings["task"] != "sample":
            return None
        if sampler not in SHARED_SAMPLERS or self.settings["budget"] is not None:
            return None
        if sampler == "masked" and self.settings["seed"] is not None:
            return None
        return json.dumps({name: value for name, value in self.settings.items() if name not in INDIVIDUAL}, sort_keys=True)

    def succeed(self, result: dict[str, Any]) -> None:
        """The result, if somebody still waits."""
        if not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: ApiError) -> None:
        """An error instead."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def leave(self) -> None:
        """The client has left."""
        self.answer.cancel()
