"""Constraint circuits and their queries."""

from locore.kernel.circuits.chain import Block, Builder, Chain
from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.left_to_right import DEAD, LeftToRight, TableReader

__all__ = ["DEAD", "Block", "Builder", "Chain", "Circuit", "LeftToRight", "TableReader"]
