"""`python -m locore_lab.demo`: what masking does wrong and what Locore gives, in one screen, beside a computed truth.

On SmolLM2: one question in a chat, whose answer is one of five and whose truth is enumerated, and one open text, whose truth is
pooled from two samplers. Where its weights are not installed, the bundled model shows a smaller example. The examples were
fixed in advance, because they show the fault; try your own with --prompt and --ending.
"""
