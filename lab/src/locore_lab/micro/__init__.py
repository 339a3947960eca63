"""Measurements of single parts, each a command: python -m locore_lab.micro.NAME."""
