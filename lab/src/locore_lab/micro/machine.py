"""What a result was measured on."""

import transformers

from locore import records


def machine() -> dict:
    """Names and versions; no paths, no host."""
    return {**records.machine(), "transformers": transformers.__version__}
