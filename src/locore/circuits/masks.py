"""Allowed-token masks of one sequence that grows token by token: the state is kept, and masks that come again are too.

`circuit.allowed(prefix)` says the same and reads the prefix anew.
"""

from __future__ import annotations

import copy
import operator
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from locore.circuits.left_to_right import DEAD, LeftToRight
from locore.errors import InvalidArgument

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
        self._state = reader.start
        self._masks = _Masks(reader, memory_bytes)

    def copy(self) -> MaskReader:
        """Another reader of the same prefix, which may go on differently. It shares the kept masks."""
        return copy.copy(self)

    def advance(self, token: int) -> None:
        """Read one token id. After one that was not allowed nothing is allowed any more.

        Raises:
            InvalidArgument: no token id of this vocabulary, or the length is reached.
        """
        self._state = self._masks.step(self.position, self._state, token)
        self.position += 1

    def mask(self) -> Tensor:
        """Bool[vocab]: the allowed tokens. Not to be written to: the next reader in this state gets the same tensor.

        Raises:
            InvalidArgument: the length is reached.
        """
        return self._masks.mask(self.position, self._state)


def stack_masks(readers: Sequence[MaskReader], out: Tensor | None = None) -> Tensor:
    """Bool[batch, vocab]: the masks of several readers, at any positions.

    Args:
        readers: those of one circuit.
        out: written to if given.
    """
    return torch.stack([reader.mask() for reader in readers], out=out)


class _Masks:
    """The transitions of a circuit as numpy arrays, whose single entries are read ten times faster than those of tensors."""

    def __init__(self, reader: LeftToRight, memory_bytes: int) -> None:
        arrays = {id(tensor): tensor.cpu().numpy() for tensor in (*reader.rows, *reader.live)}
        self._rows = [arrays[id(rows)] for rows in reader.rows]
        self._live = [arrays[id(live)] for live in reader.live]
        self._token_class = reader.token_class
        self._class_of = reader.token_class.cpu().numpy()
        self._kinds = reader.kinds
        self._kept: OrderedDict[tuple[int, int], Tensor] = OrderedDict()
        self._most = memory_bytes // len(self._class_of)

    def step(self, position: int, state: int, token: int) -> int:
        """The state after a token; DEAD where nothing can be completed any more."""
        if not hasattr(token, "__index__") or not 0 <= (token := operator.index(token)) < len(self._class_of):
            raise InvalidArgument(
                f"token ids must be whole numbers in 0..{len(self._class_of) - 1} for this circuit; got {token!r}."
            )
        self._check(position)
        target = DEAD if state == DEAD else int(self._rows[position][state, self._class_of[token]])
        return target if target != DEAD and self._live[position + 1][target] else DEAD

    def mask(self, position: int, state: int) -> Tensor:
        """Bool[vocab], kept for the next time; the one that was not used for longest is forgotten."""
        self._check(position)
        key = (self._kinds[position], state)
        mask = self._kept.get(key)
        if mask is not None:
            self._kept.move_to_end(key)
            return mask
        mask = self._kept[key] = self._computed(position, state)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return mask

    def _computed(self, position: int, state: int) -> Tensor:
        targets = self._rows[position][state]
        possible = (targets != DEAD) & self._live[position + 1][targets]  # DEAD reads some state's flag, which does not count
        if state == DEAD:
            possible = np.zeros_like(possible)
        return torch.from_numpy(possible).to(self._token_class.device).index_select(0, self._token_class)

    def _check(self, position: int) -> None:
        if position >= len(self._rows):
            raise InvalidArgument(
                f"the prefix has {position} tokens, and so many are all that the circuit speaks about; compile for a greater "
                "length."
            )
