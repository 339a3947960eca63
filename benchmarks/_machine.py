"""What a result was measured on."""

import transformers

from locore.bench.fidelity import tables


def machine() -> dict:
    """Names and versions; no paths, no host."""
    return {**tables.machine(), "transformers": transformers.__version__}
