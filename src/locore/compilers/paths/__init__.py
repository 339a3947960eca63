"""Simple paths in graphs, by the frontier method."""
