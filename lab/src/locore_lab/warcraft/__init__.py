"""Minimum-cost paths on terrain maps in the style of Warcraft II: data, model and training."""
