"""Audits against the truth: problems whose answer is known, and what others say of them."""
