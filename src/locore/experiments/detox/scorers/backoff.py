"""When to ask a service again."""

from __future__ import annotations

import random

from urllib3.util.retry import Retry


class PatientRetry(Retry):
    """urllib3's policy with a pause before the first retry too (it asks again at once), doubled each time, plus jitter."""

    def get_backoff_time(self) -> float:
        """Seconds before the next try, where the service did not say."""
        tries = len(self.history)
        if tries == 0:
            return 0.0
        doubled = min(self.backoff_max, self.backoff_factor * 2.0 ** (tries - 1))
        return float(doubled + random.random() * self.backoff_jitter)
