"""How much is measured, with which models (Llamas with random weights); the rows are the same in every plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

import locore
from locore.kernel.tokenizer import Tokenizer
from locore.models import HuggingFaceModel
from locore.models.onednn import is_wanted, pack
from locore.models.quiet import quiet
from locore_lab.harness import Columns, Fields


@dataclass(frozen=True)
class Shape:
    """Of a Llama."""

    vocab: int  # as in its configuration
    hidden: int
    inner: int
    layers: int
    heads: int
    shared_heads: int | None = None  # of keys and values; as many as `heads` if None
    tied: bool = True  # do input and output share their embedding?

    def model(self, positions: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> HuggingFaceModel:
        """One with bare ids for tokens and no end, that reads so many positions."""
        config = transformers.LlamaConfig(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.heads if self.shared_heads is None else self.shared_heads,
            max_position_embeddings=positions,
            tie_word_embeddings=self.tied,
        )
        with quiet(), torch.random.fork_rng(), torch.device(device), _default(dtype):
            torch.manual_seed(0)
            module = transformers.LlamaForCausalLM(config).requires_grad_(False)
        if is_wanted() and module.device.type == "cpu":
            pack(module)  # as `load` does
        return HuggingFaceModel.from_module(module, Tokenizer.integers(self.vocab))


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    """Weights are made in this type, and never in a larger one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def parameters(model: HuggingFaceModel) -> int:
    """How many numbers the weights are."""
    return sum(weight.numel() for weight in model.causal.module.parameters())


def millions(number: int) -> str:
    """As a person writes it."""
    return f"{number / 1e6:.3g}M"


ACCELERATOR_PROMPT = 16  # tokens


class Models:
    """Made when first asked for; another name lets the last one go."""

    def __init__(self, make: Callable[[str], HuggingFaceModel]) -> None:
        self._make = make
        self._last: tuple[str, HuggingFaceModel] | None = None

    def __getitem__(self, name: str) -> HuggingFaceModel:
        if self._last is None or self._last[0] != name:
            self._last = None  # first: both may not fit
            self._last = name, self._make(name)
        return self._last[1]


def on_cpu(plan: SpeedPlan) -> Models:
    """The bundled model and the Llamas of a plan, in float32."""

    def make(name: str) -> HuggingFaceModel:
        if name in plan.shapes:
            return plan.shapes[name].model(max(plan.neighbour_prompts + plan.sampling_prompts) + plan.n)
        model = locore.load(name)
        assert isinstance(model, HuggingFaceModel)
        return model

    return Models(make)


def on_device(plan: SpeedPlan) -> Models:
    """The large Llamas of a plan, in bfloat16 on its device."""
    positions = ACCELERATOR_PROMPT + plan.n
    return Models(lambda name: plan.accelerator_shapes[name].model(positions, str(plan.device), torch.bfloat16))


Row = dict[str, Any]
Key = tuple[str | int, ...]
Case = tuple[Key, Callable[[], list[Row]]]  # its name in the journal, and what measures its rows
BUNDLED = "tiny"


@dataclass(frozen=True)
class Table:
    """A table of the report: what is said of it, its columns, and what it shows beside the fields of a row."""

    about: str
    columns: Columns
    fields: Fields = field(default_factory=dict)


LLAMA_3 = {
    "Llama 3.2 1B": Shape(128_256, 2048, 8192, 16, 32, shared_heads=8),
    "Llama 3 8B": Shape(128_256, 4096, 14_336, 32, 32, shared_heads=8, tied=False),
}


@dataclass(frozen=True)
class SpeedPlan:
    """Sizes."""

    shapes: dict[str, Shape]  # of the Llamas with random weights, by name
    n: int  # tokens of a draft and of a continuation
    ks: tuple[int, int]  # candidates at each position
    rows: int  # continuations that are drawn together
    full_tokens: int  # tokens of full sequences that one measurement of the plain Algorithm 1 reads, at most
    repeats: int  # of each measurement; the fastest counts
    neighbour_prompts: tuple[int, ...] = (16, 256, 1024)  # tokens of the prompts
    sampling_prompts: tuple[int, ...] = (16, 256)
    words: tuple[int, ...] = (50, 500, 5000)  # numbers of banned words; more words make larger circuits
    # variables, clauses and span of random 3-CNFs, for PySDD
    formulas: tuple[tuple[int, int, int], ...] = ((60, 150, 12), (60, 100, 25))
    batch: int = 64  # distributions of a circuit query, and prefixes of a mask
    vocabulary: int = 128_000  # tokens, for masks
    accelerator_shapes: dict[str, Shape] = field(default_factory=lambda: LLAMA_3)  # of the part "accelerator"
    accelerator_ks: tuple[int, ...] = (10, 50)
    accelerator_particles: tuple[int, ...] = (16, 96)
    accelerator_rows: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    device: str | None = None  # of that part, such as "cuda"; None to leave it out
    lengths: tuple[int, ...] = (8, 16, 32, 64, 128, 256)  # the points of the curves
    candidates: tuple[int, ...] = (4, 8, 16, 32, 64)
    particles: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    vocabularies: tuple[int, ...] = (512, 2048, 8192, 32_000, 128_000)
    constraint_words: tuple[int, ...] = (10, 100, 1000, 10_000, 100_000)


FULL = SpeedPlan({"small": Shape(8192, 384, 1024, 10, 6), "large": Shape(32000, 768, 2048, 11, 12)}, 20, (16, 64), 32, 4096, 2)
QUICK = SpeedPlan(
    {"small": Shape(512, 64, 176, 2, 2), "large": Shape(2048, 128, 352, 4, 2)},
    8,
    (4, 8),
    8,
    4096,
    2,
    words=(5, 50, 500),
    formulas=((30, 60, 8), (60, 150, 12)),
    accelerator_shapes={"small": Shape(512, 64, 176, 2, 2), "large": Shape(2048, 128, 352, 4, 2)},
    accelerator_ks=(2, 4),
    accelerator_particles=(4, 8),
    accelerator_rows=(1, 4, 16),
    batch=16,
    vocabulary=8192,
    lengths=(8, 16, 32),
    candidates=(4, 8, 16),
    particles=(1, 4, 16),
    vocabularies=(512, 2048, 8192),
    constraint_words=(10, 100, 1000),
)
