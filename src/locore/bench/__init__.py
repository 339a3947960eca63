"""Benchmarks that ship with the library; they use its public names only."""
