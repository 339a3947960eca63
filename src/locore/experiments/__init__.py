"""Experiments of the paper that ship with the package; they use public names only."""
