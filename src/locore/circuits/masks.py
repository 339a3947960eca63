"""Masks of one sequence that grows token by token: the state is kept, and masks that come again are too.

`circuit.allowed(prefix)` says the same and reads the prefix anew.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence

import torch
from torch import Tensor

from locore.cache import Kept
from locore.kernel.circuits.reading import LeftToRight
from locore.kernel.errors import InvalidArgument

MEMORY_BYTES = 64_000_000  # of masks that are kept


class MaskReader:
    """Which tokens may come next, so that the rest can still be completed within the length.

    ```python
    reader = MaskReader(circuit.reader)
    for _ in range(circuit.length):
        token = choose(reader.mask())
        reader.advance(token)
    ```

    Attributes:
        position: number of tokens read so far.
    """

    def __init__(self, reader: LeftToRight, memory_bytes: int = MEMORY_BYTES) -> None:
        """Nothing has been read yet.

        Args:
            reader: the left-to-right reading of a circuit; masks are on its device.
            memory_bytes: masks of so many bytes are kept, those used last; copies share them. 0: none.
        """
        self.position = 0
        self._reader, self._state = reader, reader.start
        self._kinds = reader.kinds
        self._masks: Kept[tuple[int, int], Tensor] = Kept(memory_bytes, lambda mask: mask.nbytes)

    def copy(self) -> MaskReader:
        """Another reader of the same prefix, which may go on differently. It shares the kept masks."""
        return copy.copy(self)

    def advance(self, token: int) -> None:
        """Read one token id. After one that was not allowed nothing is allowed any more.

        Raises:
            InvalidArgument: no token id of this vocabulary, or the length is reached.
        """
        size = len(self._reader.token_class)
        if not hasattr(token, "__index__") or not 0 <= (token := operator.index(token)) < size:
            raise InvalidArgument(f"token ids must be whole numbers in 0..{size - 1} for this circuit; got {token!r}.")
        self._check()
        self._state = self._reader.state_after(self.position, self._state, token)
        self.position += 1

    def mask(self) -> Tensor:
        """Bool[vocab]: the allowed tokens. Not to be written to: the next reader in this state gets the same tensor.

        Raises:
            InvalidArgument: the length is reached.
        """
        self._check()
        key = self._kinds[self.position], self._state
        mask = self._masks.get(key)
        return self._masks.put(key, self._reader.mask(self.position, self._state)) if mask is None else mask

    def _check(self) -> None:
        if self.position >= self._reader.length:
            raise InvalidArgument(
                f"the prefix has {self.position} tokens, and so many are all that the circuit speaks about; compile for a "
                "greater length."
            )


def stack_masks(readers: Sequence[MaskReader], out: Tensor | None = None) -> Tensor:
    """Bool[batch, vocab]: the masks of several readers, at any positions.

    Args:
        readers: those of one circuit.
        out: written to if given.
    """
    return torch.stack([reader.mask() for reader in readers], out=out)
