"""Language models: one protocol, from tables of probabilities to Hugging Face checkpoints."""

from typing import TYPE_CHECKING

from locore.kernel.models.cursor import Cursor
from locore.kernel.models.language_model import Drafts, LanguageModel, ModelInfo, Origin
from locore.kernel.models.validation import prompt_ids
from locore.kernel.plugins import lazy_names
from locore.models.by_name import load
from locore.models.following import Biased, EndingAt, MinP, Penalised
from locore.models.table import MarkovModel, TableModel
from locore.models.wrappers import Counted, Mixture, Tempered, TopK, TopP

__all__ = [
    "Biased",
    "Counted",
    "Cursor",
    "Drafts",
    "EncoderDecoder",
    "EndingAt",
    "HuggingFaceModel",
    "LanguageModel",
    "MarkovModel",
    "MinP",
    "Mixture",
    "ModelInfo",
    "Origin",
    "Penalised",
    "Remembered",
    "TableModel",
    "Tempered",
    "TopK",
    "TopP",
    "load",
    "prompt_ids",
]

if TYPE_CHECKING:
    from locore.models.encoder_decoder import EncoderDecoder
    from locore.models.huggingface import HuggingFaceModel
    from locore.models.remembered import Remembered

# `transformers` takes seconds to import, and only these classes need it.
__getattr__ = lazy_names(
    __name__, {"EncoderDecoder": ".encoder_decoder", "HuggingFaceModel": ".huggingface", "Remembered": ".remembered"}
)
