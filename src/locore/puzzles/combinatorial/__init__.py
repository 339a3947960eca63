"""Constraints that compare positions with each other: all different, counts, sums, permutations, Sudoku."""

from locore.puzzles.combinatorial.equality import (
    AllDifferent,
    AllEqual,
    Combinatorial,
    Permutation,
    all_different,
    all_equal,
    permutation,
)
from locore.puzzles.combinatorial.sudoku import Sudoku, sudoku
from locore.puzzles.combinatorial.sums import DigitSum, HowMany, TokenSum, at_least, at_most, digit_sum, exactly, token_sum

__all__ = [
    "AllDifferent",
    "AllEqual",
    "Combinatorial",
    "DigitSum",
    "HowMany",
    "Permutation",
    "Sudoku",
    "TokenSum",
    "all_different",
    "all_equal",
    "at_least",
    "at_most",
    "digit_sum",
    "exactly",
    "permutation",
    "sudoku",
    "token_sum",
]
