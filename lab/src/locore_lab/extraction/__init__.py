"""Extraction whose answers can be checked: orders whose true posterior is known, and a small model that learned them."""
