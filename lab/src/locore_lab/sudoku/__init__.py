"""Sudoku, the second experiment of the paper: a model writes the solution of a puzzle."""
