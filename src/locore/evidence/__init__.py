"""What is known of p(α) and of texts after a run: weighted sequences, bounds, intervals, verdicts."""

from locore.kernel.evidence.blocks import Block, Blocks, Lineage, Surprise
from locore.kernel.evidence.particles import Particles
from locore.kernel.evidence.record import Draws, Guarantee, Mode, Record, Run, TableUse, keep_positive
from locore.kernel.evidence.verdict import Verdict

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
