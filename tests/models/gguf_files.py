"""A tiny Llama as a GGUF file and as a plain folder, each written by a road of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers.convert_slow_tokenizer import bytes_to_unicode

from locore.models.quiet import quiet

HEADS, KEY_HEADS, LAYERS = 4, 2, 2
SPECIAL = ("<|endoftext|>", "<|im_end|>")
MERGES = (("t", "h"), ("Ġ", "th"), ("i", "n"), ("1", "2"))
BYTES = [bytes_to_unicode()[byte] for byte in range(256)]
TOKENS = [*SPECIAL, *BYTES, *("".join(pair) for pair in MERGES)]
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|im_end|>{% endfor %}"
CONFIG = {
    "vocab_size": len(TOKENS),
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "max_position_embeddings": 48,
    "initializer_range": 0.3,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"},
    "bos_token_id": 0,
    "eos_token_id": 1,
}
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def random_weights(tied: bool = True) -> dict[str, torch.Tensor]:
    """State of a random module, by the names of transformers."""
    with torch.random.fork_rng(), quiet():
        torch.manual_seed(0)
        module = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG, tie_word_embeddings=tied))
    weights = {name: weight.clone() for name, weight in module.state_dict().items()}
    for name, weight in weights.items():
        if "norm" in name:  # ones would not show which is which
            weights[name] = 0.5 + torch.rand(weight.shape, generator=torch.Generator().manual_seed(len(name)))
    return weights


def write_folder(folder: Path, weights: dict[str, torch.Tensor], single_digits: bool = False) -> Path:
    """What `save_pretrained` writes of these weights and of the tokenizer."""
    with quiet():
        config = transformers.LlamaConfig(**CONFIG, tie_word_embeddings=is_tied(weights))
        module = transformers.LlamaForCausalLM(config)
        module.load_state_dict(weights)
        module.save_pretrained(folder)
    vocabulary = {token: i for i, token in enumerate(TOKENS)}
    fast = FastTokenizer(models.BPE(vocab=vocabulary, merges=list(MERGES)))
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = [pre_tokenizers.Digits(individual_digits=True)] if single_digits else []
    fast.pre_tokenizer = pre_tokenizers.Sequence([*digits, split])
    fast.decoder = decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=fast, bos_token=SPECIAL[0], eos_token=SPECIAL[1], chat_template=TEMPLATE
    ).save_pretrained(folder)
    return folder


def write_gguf(
    path: Path,
    weights: dict[str, torch.Tensor],
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    splitting: str | None = "gpt-2",
    without: str = "",
    architecture: str = "llama",
    **metadata: Any,
) -> Path:
    """The same as llama.cpp lays it out.

    Args:
        kind: format of the matrices; vectors are always F32.
        splitting: name of the rule by which texts are split; None says nothing.
        without: a tensor that is left out.
        **metadata: texts and numbers in addition, with "__" for the dots of their names.
    """
    writer = gguf.GGUFWriter(path, architecture)
    _write_metadata(writer, splitting)
    for key, value in metadata.items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
        add(key.replace("__", "."), value)
    for name, data in as_llama_cpp(weights).items():
        if name == without:
            continue
        if data.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_metadata(writer: gguf.GGUFWriter, splitting: str | None) -> None:
    writer.add_name("Tiny Test")
    writer.add_organization("Nobody")
    writer.add_license("cc0-1.0")
    writer.add_context_length(CONFIG["max_position_embeddings"])
    writer.add_embedding_length(CONFIG["hidden_size"])
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(CONFIG["intermediate_size"])
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(CONFIG["rms_norm_eps"])
    writer.add_rope_freq_base(CONFIG["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(CONFIG["hidden_size"] // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    if splitting is not None:
        writer.add_tokenizer_pre(splitting)
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.CONTROL] * len(SPECIAL) + [gguf.TokenType.NORMAL] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def as_llama_cpp(weights: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Weights by the names of llama.cpp, with rows of queries and keys in its order."""
    found = {"token_embd.weight": weights["model.embed_tokens.weight"], "output_norm.weight": weights["model.norm.weight"]}
    if not is_tied(weights):
        found["output.weight"] = weights["lm_head.weight"]
    for layer in range(LAYERS):
        for theirs, name in NAMES.items():
            weight = weights[f"model.layers.{layer}.{theirs}.weight"]
            if name in ("attn_q", "attn_k"):
                heads = HEADS if name == "attn_q" else KEY_HEADS
                weight = weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
            found[f"blk.{layer}.{name}.weight"] = weight
    return {name: weight.contiguous().numpy() for name, weight in found.items()}


def is_tied(weights: dict[str, torch.Tensor]) -> bool:
    return torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])
