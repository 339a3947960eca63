"""Asking a service over HTTP, and again with growing pauses where that may help. Needs urllib3."""

from __future__ import annotations

import random

import urllib3
from urllib3.util.retry import Retry

TRY_AGAIN = (429, 500, 502, 503, 504)


class PatientRetry(Retry):
    """urllib3's policy with a pause before the first retry too (it asks again at once), doubled each time, plus jitter."""

    def get_backoff_time(self) -> float:
        """Seconds before the next try, where the service did not say."""
        tries = len(self.history)
        if tries == 0:
            return 0.0
        doubled = min(self.backoff_max, self.backoff_factor * 2.0 ** (tries - 1))
        return float(doubled + random.random() * self.backoff_jitter)


def patient_pool(retries: int, timeout: float, backoff: float, connections: int = 1) -> urllib3.PoolManager:
    """A pool that tries again by itself, without following redirects: they would carry a key elsewhere.

    Args:
        retries: after 429, 5xx, timeouts and broken connections, for each request.
        timeout: seconds to wait for a connection, and for each part of an answer.
        backoff: seconds before the first retry, doubled before each further one (at most 64 times as long) and lengthened by
            up to as much again at random; a `Retry-After` of the service goes before.
        connections: that are kept open.
    """
    policy = PatientRetry(
        total=retries,
        redirect=False,
        allowed_methods=None,  # POST too: asking twice changes nothing
        status_forcelist=TRY_AGAIN,
        backoff_factor=backoff,
        backoff_max=64 * backoff,
        backoff_jitter=backoff,
        raise_on_status=False,
        respect_retry_after_header=True,
    )
    return urllib3.PoolManager(retries=policy, timeout=timeout, maxsize=connections)
