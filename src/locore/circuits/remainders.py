"""What is left of the nodes of a circuit when tokens are known, one position after the other."""

from __future__ import annotations

from locore.circuits.block import FALSE, FIRST_LEAF, TRUE, Block

Key = tuple[int, int, int, int]


class Remainders:
    """Nodes (a ∧ b) ∨ (c ∧ d) and leaves, of the circuit and those that conditioning makes; children come before parents."""

    def __init__(self, block: Block, num_classes: int) -> None:
        self._leaf: list[tuple[int, int] | None] = [None, None]  # position, and the classes as a mask
        self._key: list[Key | None] = [None, None]
        self._scope = [0, 0]
        self._index: dict[Key, int] = {}
        width = 1 << (num_classes - 1).bit_length()
        self.slot = [FALSE, TRUE]
        for position, heap in block.leaves.tolist():
            span = width >> (heap.bit_length() - 1)
            first = heap * span - width
            mask = (1 << min(first + span, num_classes)) - (1 << min(first, num_classes))
            self.slot.append(self._put((position, mask), None, 1 << position) if mask else FALSE)
        for level in block.levels:
            for a, b, c, d in level.T.tolist():
                self.slot.append(self._node(self.slot[a], self.slot[b], self.slot[c], self.slot[d]))
        assert len(self.slot) == block.num_slots == FIRST_LEAF + len(block.leaves) + sum(x.shape[1] for x in block.levels)

    def possible(self, root: int, position: int) -> int:
        """The classes, as a mask, that the token at a position can have."""
        found: dict[int, int] = {}
        for node in self._touched(root, position):
            leaf, key = self._leaf[node], self._key[node]
            if leaf is not None:
                found[node] = leaf[1]
            elif key is not None:
                found[node] = 0
                for child in key:
                    found[node] |= found.get(child, 0)
        return found.get(root, 0)

    def conditioned(self, root: int, position: int, number: int) -> int:
        """What is left of a node once the token at a position has this class."""
        after: dict[int, int] = {}
        for node in self._touched(root, position):
            leaf, key = self._leaf[node], self._key[node]
            if leaf is not None:
                after[node] = TRUE if leaf[1] >> number & 1 else FALSE
            elif key is not None:
                after[node] = self._node(*(after.get(child, child) for child in key))
        return after.get(root, root)

    def _touched(self, root: int, position: int) -> list[int]:
        """The nodes below a root that speak about a position, children first."""
        bit, scope = 1 << position, self._scope
        if not scope[root] & bit:
            return []
        found, pending = {root}, [root]
        while pending:
            for child in self._key[pending.pop()] or ():
                if scope[child] & bit and child not in found:
                    found.add(child)
                    pending.append(child)
        return sorted(found)

    def _node(self, a: int, b: int, c: int, d: int) -> int:
        first = (FALSE, FALSE) if FALSE in (a, b) else (a, b) if a != TRUE else (b, TRUE)
        second = (FALSE, FALSE) if FALSE in (c, d) else (c, d) if c != TRUE else (d, TRUE)
        if first[0] == FALSE:
            first, second = second, first
        if second[0] == FALSE and first[1] in (TRUE, FALSE):
            return first[0]
        key = (*first, *second)
        if key not in self._index:
            scope = 0
            for child in key:
                scope |= self._scope[child]
            self._index[key] = self._put(None, key, scope)
        return self._index[key]

    def _put(self, leaf: tuple[int, int] | None, key: Key | None, scope: int) -> int:
        self._leaf.append(leaf)
        self._key.append(key)
        self._scope.append(scope)
        return len(self._scope) - 1
