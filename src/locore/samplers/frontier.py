"""What a sampler knows for certain of p(α) after its reading of prefixes from left to right.

Before the last token it leaves prefixes unread: x followed by an allowed v that nobody took. After the last one it knows which
sequences satisfy α and how probable they are, whether it keeps them or not. With K the probability of these and U that of what
was left, K ≤ p(α) ≤ K + U. All terms are positive, so nothing cancels however rare α is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from locore.numerics import NEG_INF


class Frontier:
    """The probability of what was left, summed position by position.

    `log_joint` is always f64[prefixes, vocab], log p(x)·p(v | x) of *distinct* prefixes x of one position, −inf where v is not
    allowed.
    """

    def __init__(self) -> None:
        """Nothing has been read or left yet."""
        self._log_left = torch.tensor(NEG_INF, dtype=torch.float64)

    def leave(self, log_joint: Tensor, row: Tensor, token: Tensor) -> None:
        """All prefixes that were read, of which Long[children] rows go on with these tokens. Overwrites `log_joint`."""
        log_joint[row, token] = NEG_INF
        self._log_left = torch.logaddexp(self._log_left, torch.logsumexp(log_joint.flatten(), 0))

    def close(self, log_joint: Tensor) -> dict[str, float]:
        """Log bounds of p(α), given the prefixes before the last token and the tokens with which they satisfy α."""
        known = torch.logsumexp(log_joint.flatten(), 0)
        return {"log_evidence_lower": float(known), "log_evidence_upper": float(torch.logaddexp(known, self._log_left))}
