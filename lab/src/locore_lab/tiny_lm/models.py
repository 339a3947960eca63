"""The models: `tiny`, which writes, `judge`, which gives perplexities to what it wrote, and `clerk`, which reads orders.

The judge is of another family, with another tokenizer, and was trained apart, so that it does not share the habits of the
model that it judges. The clerk learns from `locore_lab.extraction.world`, where the truth is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PretrainedConfig, PreTrainedModel

import locore
import locore_lab.detox
import locore_lab.extraction
from locore_lab.shared import RUNS

BOS_ID, EOS_ID = 0, 1
NEWLINE_ID = 200  # of the byte-level alphabet behind the special tokens
CONTEXT = 512
SPECIAL = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": EOS_ID}


@dataclass(frozen=True)
class Recipe:
    """A model to train."""

    config: PretrainedConfig  # its architecture and size
    folder: Path  # where it is exported
    answers_after: int | None = None  # only what follows this token within a document is learned

    @property
    def runs(self) -> Path:
        """Folder of its packed data and checkpoints."""
        return RUNS / self.folder.name

    def make(self) -> PreTrainedModel:
        """The model with random weights."""
        return AutoModelForCausalLM.from_config(self.config)


def _llama(vocab: int, heads: int, intermediate: int, layers: int) -> LlamaConfig:
    """With heads of 64 numbers, and one matrix for both ends."""
    return LlamaConfig(
        vocab_size=vocab,
        hidden_size=64 * heads,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        **SPECIAL,
    )


RECIPES = {
    "tiny": Recipe(_llama(2048, heads=4, intermediate=768, layers=4), Path(locore.__file__).parent / "assets" / "tiny"),
    "judge": Recipe(
        GPT2Config(
            vocab_size=1024,
            n_positions=CONTEXT,
            n_embd=128,
            n_layer=4,
            n_head=4,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            resid_pdrop=0.0,
            **SPECIAL,
        ),
        Path(locore_lab.detox.__file__).parent / "weights" / "judge",
    ),
    "clerk": Recipe(
        _llama(640, heads=3, intermediate=512, layers=5),
        Path(locore_lab.extraction.__file__).parent / "weights" / "clerk",
        answers_after=NEWLINE_ID,
    ),
}
