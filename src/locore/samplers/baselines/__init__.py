"""Samplers to compare with: proper or consistent, and beaten by others at every budget that was measured."""
