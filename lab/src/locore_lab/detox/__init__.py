"""Detoxification, the third experiment of the paper: continuations without any phrase of a list."""
