"""Can a longer text satisfy what is left of a constraint, with a horizon as far away as it likes?

Positions beyond the horizon are free: literals, counts and other leaves that name positions have been decided there, and what
is left are states of automata, which go on reading. A search over residuals finds a text, or that there is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from locore.compilers.residual import Residuals
from locore.constraints import Constant, Constraint

MOST_RESIDUALS = 10_000  # of one search; beyond, it is taken that there is a longer text
Place = tuple[Constraint, int]  # a residual and its position, which is the horizon for all that lie beyond


class Longer:
    """Answers for the residuals of one constraint, which are remembered.

    Attributes:
        text: Int64[classes], the classes of tokens that do not end the text and may occur.
    """

    def __init__(self, residuals: Residuals, blocked: NDArray[np.bool_], must_end: bool = False) -> None:
        """Nothing has been asked.

        Args:
            blocked: Bool[classes], classes that may not occur at all; the ends of the text may be among them.
            must_end: a text that reaches its horizon without an end does not count.
        """
        self._residuals = residuals
        self._must_end = must_end
        ends = [int(residuals.classes.token_class[token]) for token in residuals.eos_ids]
        self.text = np.setdiff1d(np.nonzero(~blocked)[0], ends)
        self._known: dict[Place, bool] = {}

    def possible(self, residual: Constraint, position: int) -> bool:
        """Does one more token, and then any number of them, lead to a text that satisfies the residual at `position`?"""
        place = residual, min(position, self._residuals.length)
        if place not in self._known:
            self._known[place] = self._search(place)
        return self._known[place]

    def _search(self, start: Place) -> bool:
        waiting: deque[Place] = deque(self._after(start))
        seen: set[Place] = set()
        while waiting:
            place = waiting.popleft()
            if place not in seen:
                seen.add(place)
                if len(seen) > MOST_RESIDUALS or self._may_stop(*place):
                    return True
                waiting.extend(self._after(place))
        self._known.update(dict.fromkeys(seen, False))  # none of them leads on either
        return False

    def _after(self, place: Place) -> Iterator[Place]:
        """The places that a token leads to."""
        residual, position = place
        length = self._residuals.length
        if isinstance(residual, Constant):
            following = [residual] if residual.value else []
        elif position == length and not self._residuals.is_timeless(residual):
            following = []  # a leaf that needs positions which do not exist
        else:
            outcomes, which = self._residuals.row(residual, position)
            following = [outcomes[i] for i in np.unique(which[self.text]).tolist()]
        for outcome in following:
            if not isinstance(outcome, Constant) or outcome.value:
                yield outcome, min(position + 1, length)

    def _may_stop(self, residual: Constraint, position: int) -> bool:
        """Does the residual hold if the text ends here, or reaches a horizon here?"""
        residuals = self._residuals
        beyond = position == residuals.length
        if beyond and not self._must_end and residuals.finished(residual):
            return True
        # Beyond the horizon only timeless residuals are left, and as much padding follows as one likes.
        return any(residuals.at_end(residual, 0 if beyond else position, token) for token in residuals.eos_ids)
