"""Constraint circuits and their queries."""

from typing import TYPE_CHECKING

from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.reading import DEAD, LeftToRight, TableReader
from locore.kernel.plugins import lazy_names

if TYPE_CHECKING:
    from locore.circuits.builder import Builder
    from locore.circuits.chain import Chain
    from locore.circuits.levels import Block

__all__ = ["DEAD", "Block", "Builder", "Chain", "Circuit", "LeftToRight", "TableReader"]

__getattr__ = lazy_names(__name__, {"Block": ".levels", "Builder": ".builder", "Chain": ".chain"})
