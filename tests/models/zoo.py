"""Tiny models of every kind, for laws that hold for all of them."""

import atexit
import contextlib
import functools
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import transformers

from locore.kernel.models.language_model import LanguageModel
from locore.kernel.tokenizer import Tokenizer
from locore.models import Counted, EncoderDecoder, HuggingFaceModel, Mixture, Remembered, TableModel, Tempered, TopK, TopP, load
from locore.models.engines.model import EngineModel
from locore.models.quiet import quiet
from locore.models.table import MarkovModel

from . import engine_server, llamacpp_stub

DEVICE = os.environ.get("LOCORE_DEVICE") or "cpu"  # as for `locore.load`
VOCAB = 23
LENGTH = 7

_SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "initializer_range": 0.4,
}
_GPT2 = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
_SSM = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}
_QWEN_NEXT = _SHAPE | {
    "head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "layer_types": ["linear_attention", "full_attention"],
}

# Architecture -> its configuration; can its cache be cut and continued; can rows be packed; can rows share a prompt?
ARCHITECTURES = {
    "llama": (lambda: transformers.LlamaConfig(**_SHAPE), True, True, True),
    "gpt2": (lambda: transformers.GPT2Config(**_GPT2, initializer_range=0.4), True, True, True),
    "bloom": (
        lambda: transformers.BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.4),
        True,
        False,
        False,
    ),
    "sliding": (lambda: transformers.MistralConfig(**_SHAPE, sliding_window=3), True, False, False),
    "hybrid sliding": (
        lambda: transformers.Gemma3TextConfig(
            **_SHAPE, head_dim=8, sliding_window=3, layer_types=["sliding_attention", "full_attention"]
        ),
        True,
        False,
        False,
    ),
    "state space": (lambda: transformers.MambaConfig(**_SSM, initializer_range=0.4), False, False, False),
    "hybrid recurrent": (lambda: transformers.Qwen3NextConfig(**_QWEN_NEXT), False, False, False),
}


def huggingface(
    architecture: str = "llama",
    eos_ids: tuple[int, ...] = (2, 5),
    memory_bytes: int | None = None,
    attention: str | None = None,
) -> HuggingFaceModel:
    """A random model after the prompt (1, 7, 3)."""
    with torch.random.fork_rng(), quiet():
        torch.manual_seed(0)
        config = ARCHITECTURES[architecture][0]()
        module = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).to(DEVICE)
        tokenizer = Tokenizer.integers(VOCAB, eos_ids)
        model = HuggingFaceModel.from_module(module, tokenizer, memory_bytes)
    return model.prompted((1, 7, 3))


_SIDES = ("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads")
_BOTH = {"vocab_size": VOCAB, "d_model": 32, **dict.fromkeys(_SIDES, 2), "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
_ENDS = {"pad_token_id": 2, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
_WHISPER = {"num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 32, "init_std": 0.4}
# Architecture -> its module, and what its encoder is given.
ENCODER_DECODERS = {
    "whisper": (
        lambda: transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**_BOTH, **_ENDS, **_WHISPER)),
        {"input_features": torch.linspace(-2, 2, 320).sin().reshape(1, 8, 40)},
    ),
    "marian": (
        lambda: transformers.MarianMTModel(
            transformers.MarianConfig(**_BOTH, **_ENDS, init_std=0.4, max_position_embeddings=32, forced_eos_token_id=None)
        ),
        {"input_ids": torch.tensor([[3, 4, 9, 6]])},
    ),
    "t5": (
        lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(**_ENDS, vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
        ),
        {"input_ids": torch.tensor([[3, 4, 9, 6]]), "attention_mask": torch.tensor([[1, 1, 1, 0]])},
    ),
}


def encoder_decoder(architecture: str = "whisper") -> EncoderDecoder:
    """A random one, which was given something, after two more tokens than its decoder starts from."""
    make, given = ENCODER_DECODERS[architecture]
    with torch.random.fork_rng(), quiet():
        torch.manual_seed(0)
        return EncoderDecoder.of(make().to(DEVICE), Tokenizer.integers(VOCAB, (2, 5)), **given).prompted((7, 3))


def table(eos: bool = True) -> TableModel:
    return TableModel.random(vocab_size=4, length=LENGTH, seed=3, eos=eos, concentration=0.5)


def markov(eos_ids: tuple[int, ...] = (4, 5)) -> MarkovModel:
    generator = torch.Generator().manual_seed(4)
    rows = torch.rand(7, 6, generator=generator, dtype=torch.float64)
    rows[1, 2] = rows[3, 1] = 0.0
    rows /= rows.sum(-1, keepdim=True)
    return MarkovModel(rows[0], rows[1:], eos_ids=eos_ids)


@functools.cache
def engine(kind: str) -> EngineModel:
    """A model behind a server in this process, or in what stands for llama.cpp, until the process ends."""
    return ENGINES[kind]()


@functools.cache
def endless() -> HuggingFaceModel:
    """What most servers of the tests serve."""
    return engine_server.endless(huggingface())


KNOWN: dict[tuple[int, ...], torch.Tensor] = {}  # what it said to any of them


def _served(serve: Callable[[str, Tokenizer], EngineModel], chain: bool = False, **options) -> EngineModel:
    inner = markov(()) if chain else endless()
    service = SERVERS.enter_context(engine_server.running(inner, known={} if chain else KNOWN, **options))
    tokenizer = Tokenizer.integers(inner.vocab_size, (4, 5) if chain else (2, 5))
    return serve(service.address, tokenizer).prompted((0,) if chain else (1, 7, 3))


def _vllm(address: str, tokenizer: Tokenizer) -> EngineModel:
    return load(f"{address}/v1", tokenizer=tokenizer)


def _sglang(address: str, tokenizer: Tokenizer) -> EngineModel:
    return load(f"sglang:{address}", tokenizer=tokenizer)


def _llamacpp() -> EngineModel:
    stub = llamacpp_stub.saying(endless(), ends=(2, 5), context=31)
    return llamacpp_stub.opened(stub, Path(SERVERS.enter_context(TemporaryDirectory()))).prompted((1, 7, 3))


SERVERS = contextlib.ExitStack()
atexit.register(SERVERS.close)
ENGINES = {
    "vllm server": functools.partial(_served, _vllm, max_model_len=32),
    "vllm server, nothing forced": functools.partial(_served, _vllm, max_model_len=32, forces=False),
    "vllm server of a chain": functools.partial(_served, _vllm, chain=True),
    "sglang server": functools.partial(_served, _sglang, max_model_len=32),
    "llama.cpp": _llamacpp,
}

MODELS = {
    "table": table,
    "table without end": lambda: table(eos=False),
    "markov": markov,
    "tempered": lambda: Tempered(table(), 0.6),
    "nucleus": lambda: TopP(table(), 0.7),
    "top-k": lambda: TopK(markov(), 2),
    "mixture": lambda: Mixture(TopP(table(), 0.6), table(), 0.1),
    "counted": lambda: Counted(Tempered(table(), 1.5)),
    "counted inside": lambda: Tempered(Counted(table()), 1.5),
    **{name: lambda name=name: huggingface(name) for name in ARCHITECTURES},
    **{name: lambda name=name: encoder_decoder(name) for name in ENCODER_DECODERS},
    "remembered llama": lambda: Remembered(huggingface()),
    "remembered llama, hidden states": lambda: Remembered(huggingface(), keeps="hidden"),
    "remembered gpt2, as far as memory goes": lambda: Remembered(huggingface("gpt2"), max_bytes=20_000),
    "tempered llama": lambda: Tempered(huggingface(), 0.8),
    **{kind: lambda kind=kind: engine(kind) for kind in ENGINES},
}

WRAPPED = ("tempered llama", *(name for name in MODELS if name.startswith("remembered")))
# Few enough tokens to enumerate all sequences.
SMALL = [name for name in MODELS if name not in (*ARCHITECTURES, *ENCODER_DECODERS, *WRAPPED, *ENGINES)] + [
    "vllm server of a chain"
]


def ending_sequences(model: LanguageModel, num: int, length: int) -> torch.Tensor:
    """Long[num, length], any ids, half of the rows proper: nothing but padding after an end."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, model.vocab_size, (num, length), generator=generator)
    proper = model.sample(num - num // 2, length, seed=6).tokens
    return torch.cat([tokens[: num // 2], proper])


def all_sequences(vocab_size: int, length: int) -> torch.Tensor:
    return torch.tensor(list(itertools.product(range(vocab_size), repeat=length)))


def double_llama(vocab_size: int = VOCAB, eos_ids=()) -> HuggingFaceModel:
    """In double precision, so that no rounding decides anything."""
    config = transformers.LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.8,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64).to(DEVICE)
    return HuggingFaceModel.from_module(module, Tokenizer.integers(vocab_size, eos_ids))
