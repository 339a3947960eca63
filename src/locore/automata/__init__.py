"""Deterministic automata and machines that count: over characters, bytes and tokens. They know of no constraint."""
