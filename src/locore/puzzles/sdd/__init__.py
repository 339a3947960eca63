"""Circuits for any vtree, by sentential decision diagrams."""
