"""The two models: `tiny`, which writes, and `judge`, which gives perplexities to what it wrote.

The judge is of another family, with another tokenizer, and was trained apart, so that it does not share the habits of the
model that it judges.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PretrainedConfig, PreTrainedModel

import locore
import locore_lab.detox
from locore_lab.shared import RUNS

BOS_ID, EOS_ID = 0, 1
CONTEXT = 512
SPECIAL = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": EOS_ID}


@dataclass(frozen=True)
class Recipe:
    """A model to train."""

    config: PretrainedConfig  # its architecture and size
    folder: Path  # where it is exported

    @property
    def runs(self) -> Path:
        """Folder of its packed data and checkpoints."""
        return RUNS / self.folder.name

    def make(self) -> PreTrainedModel:
        """The model with random weights."""
        return AutoModelForCausalLM.from_config(self.config)


RECIPES = {
    "tiny": Recipe(
        LlamaConfig(
            vocab_size=2048,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=64,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            **SPECIAL,
        ),
        Path(locore.__file__).parent / "assets" / "tiny",
    ),
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
}
