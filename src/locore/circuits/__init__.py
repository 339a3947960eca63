"""Constraint circuits and their queries."""

from locore.circuits.chain import Block, Builder, Chain
from locore.circuits.circuit import Circuit
from locore.circuits.left_to_right import DEAD, LeftToRight, TableReader

__all__ = ["DEAD", "Block", "Builder", "Chain", "Circuit", "LeftToRight", "TableReader"]
