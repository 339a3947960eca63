"""Models in GGUF files: read once with `transformers`, then kept as plain folders."""

from locore.models.gguf.keeping import Kept, opened
from locore.models.gguf.naming import is_gguf
from locore.models.gguf.reading import Converted

__all__ = ["Converted", "Kept", "is_gguf", "opened"]
