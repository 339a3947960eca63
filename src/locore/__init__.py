"""Locore: sampling from language models under constraints, from the right distribution."""
