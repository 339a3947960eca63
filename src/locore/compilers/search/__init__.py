"""Conjunctions of combinatorial leaves, by propagation and top-down search."""
