"""Constraints between positions, and the compilers that they bring along: puzzles, sums and counts, paths in graphs."""

from locore.puzzles import combinatorial, paths

__all__ = ["combinatorial", "paths"]
