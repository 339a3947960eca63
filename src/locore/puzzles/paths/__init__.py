"""Simple paths: over the edges of a graph, and as moves on a grid."""

from locore.puzzles.paths.graph import SimplePath, simple_path
from locore.puzzles.paths.grid import SimpleMoves, grid, simple_moves

__all__ = ["SimpleMoves", "SimplePath", "grid", "simple_moves", "simple_path"]
