"""What is known of p(α) and of texts after a run: weighted sequences, bounds, intervals, verdicts."""

from locore.evidence.blocks import Block, Blocks, Lineage, Surprise
from locore.evidence.particles import Particles
from locore.evidence.record import Draws, Guarantee, Mode, Record, Run, TableUse, keep_positive
from locore.evidence.verdict import Verdict

__all__ = [
    "Block",
    "Blocks",
    "Draws",
    "Guarantee",
    "Lineage",
    "Mode",
    "Particles",
    "Record",
    "Run",
    "Surprise",
    "TableUse",
    "Verdict",
    "keep_positive",
]
