"""Constraint circuits and their queries."""

from typing import TYPE_CHECKING

from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.left_to_right import DEAD, LeftToRight, TableReader
from locore.kernel.plugins import lazy_names

if TYPE_CHECKING:
    from locore.circuits.blocks import Block
    from locore.circuits.builder import Builder
    from locore.circuits.chain import Chain

__all__ = ["DEAD", "Block", "Builder", "Chain", "Circuit", "LeftToRight", "TableReader"]

__getattr__ = lazy_names(__name__, {"Block": ".blocks", "Builder": ".builder", "Chain": ".chain"})
