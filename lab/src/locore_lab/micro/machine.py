"""What a result was measured on."""

import transformers

from locore import io


def machine() -> dict:
    """Names and versions; no paths, no host."""
    return {**io.machine(), "transformers": transformers.__version__}
