"""A GGUF file, read with `transformers` into plain weights of 32 bits."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from locore.errors import MissingExtra, ModelNotFound
from locore.models.gguf.header import Damaged, Header, read_header
from locore.models.gguf.splitting import mend_splitting
from locore.models.info import Origin
from locore.models.quiet import quiet

EXTRA = ("gguf", "accelerate")
INSTEAD = "Use the model in Hugging Face format, a folder with config.json and *.safetensors"
# Stretched positions that `transformers` reads from no GGUF file but those of gpt-oss; without them it is another model.
_STRETCHED = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
_OF_THE_FILE = ("quantization_config", "_model_name_or_path")  # in a configuration; not of the plain model


@dataclass(frozen=True, eq=False)
class Converted:
    """What a GGUF file holds, in memory.

    Attributes:
        kind: class of the plain module.
        config: its configuration.
        generation: its generation configuration.
        weights: its state, in 32 bits.
        tokenizer: fast.
        origin: what the file says of itself.
    """

    kind: Any
    config: Any
    generation: Any
    weights: dict[str, Tensor]
    tokenizer: Any
    origin: Origin

    def module(self, dtype: torch.dtype = torch.float32, attn_implementation: str | None = None) -> Any:
        """The plain module, as if read from a folder."""
        with quiet():
            module = self.kind.from_pretrained(
                None, config=self.config, state_dict=self.weights, dtype=dtype, attn_implementation=attn_implementation
            )
        module.generation_config = self.generation
        return module

    def save(self, folder: Path) -> None:
        """Write it as a folder that `transformers` reads."""
        with quiet():
            self.module().save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)


def read(path: Path) -> Converted:
    """Read a file; this takes seconds, and minutes for billions of parameters.

    Raises:
        MissingExtra: the packages that read GGUF are not installed.
        ModelNotFound: the file is damaged, or `transformers` does not read it.
    """
    header = read_header(path)
    _require_extra(path)
    _check(header, path)
    with tempfile.TemporaryDirectory() as empty, quiet(), _without_bar(), _explained(path, header):
        folder, file = _alone(path, Path(empty))
        where: dict[str, Any] = {"gguf_file": file, "local_files_only": True}
        config = transformers.AutoConfig.from_pretrained(folder, **where)
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder, **where)
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, output_loading_info=True, **where, **_dense()
        )
    module, report = loaded
    if report["missing_keys"]:
        raise Damaged(path, f"it lacks {min(report['missing_keys'])}")
    caution = mend_splitting(tokenizer, header)
    origin = _origin(header, caution)
    return Converted(type(module), _plain(module), module.generation_config, module.state_dict(), tokenizer, origin)


def _require_extra(path: Path) -> None:
    missing = [package for package in EXTRA if find_spec(package) is None]
    if missing:
        raise MissingExtra(f"Reading {path.name} needs {' and '.join(missing)}: pip install 'locore[gguf]'")


def _check(header: Header, path: Path) -> None:
    """Refuse what would fail obscurely later, or not at all."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    if header.text("general.architecture") is None:
        raise Damaged(path, "it names no architecture")
    parts = header.metadata.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        raise ModelNotFound(f"{path} is one of {parts} parts of a model. Join them with: llama-gguf-split --merge")
    for entry in header.tensors:
        try:
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(entry.kind)]
        except ValueError:
            raise ModelNotFound(f"{path}: {entry.name} has a format that the package gguf does not know. {INSTEAD}.") from None
        if entry.start + entry.numbers // block * size > header.size:
            raise Damaged(path, f"it ends within {entry.name}, after {header.size:,} bytes")
    architecture = header.text("general.architecture")
    stretched = [entry.name for entry in header.tensors if entry.name in _STRETCHED]
    if header.text(f"{architecture}.rope.scaling.type") not in (None, "none"):
        stretched.append(f"{architecture}.rope.scaling")
    if stretched and architecture != "gpt-oss":
        raise ModelNotFound(
            f"{path} stretches positions ({stretched[0]}), which transformers does not read from GGUF. {INSTEAD}."
        )


def _alone(path: Path, empty: Path) -> tuple[str, str]:
    """The file in a folder of its own: `transformers` would also read what lies beside it."""
    link = empty / "model.gguf"
    try:
        link.symlink_to(path.resolve())
    except OSError:  # no links here
        return str(path.resolve().parent), path.name
    return str(empty), link.name


def _dense() -> dict[str, Any]:
    """Ask for unpacked weights, where `transformers` could keep them packed."""
    kind = getattr(transformers, "GgufConfig", None)
    return {} if kind is None else {"quantization_config": kind(dequantize=True)}


def _plain(module: Any) -> Any:
    """Its configuration, as `save_pretrained` would write it of a module that never was in a GGUF file."""
    config = copy.deepcopy(module.config)
    for name in _OF_THE_FILE:
        if hasattr(config, name):
            delattr(config, name)
    config._name_or_path = ""
    config.architectures = [type(module).__name__]
    return config


def _origin(header: Header, caution: str | None) -> Origin:
    names = [header.text("general.organization") or header.text("general.author"), header.text("general.name")]
    where = header.text("general.source.url") or header.text("general.url") or header.text("general.repo_url")
    known = [name for name in (*names, where) if name is not None]
    return Origin(", ".join(known) or None, header.text("general.license"), _quantisation(header), caution)


def _quantisation(header: Header) -> str:
    """Formats of the weights, by their share of the numbers."""
    from gguf import GGMLQuantizationType

    numbers: dict[str, int] = {}
    for entry in header.tensors:
        name = GGMLQuantizationType(entry.kind).name
        numbers[name] = numbers.get(name, 0) + entry.numbers
    total = max(1, sum(numbers.values()))
    largest_first = sorted(numbers.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {100 * count / total:.3g} %" for name, count in largest_first)


@contextmanager
def _without_bar() -> Iterator[None]:
    """Without a progress bar that no setting of `transformers` turns off."""
    try:
        module: Any = import_module("transformers.modeling_gguf_pytorch_utils")
        bar = module.tqdm
    except (ImportError, AttributeError):  # another version of transformers
        yield
        return
    module.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        module.tqdm = bar


@contextmanager
def _explained(path: Path, header: Header) -> Iterator[None]:
    """Turn what `transformers` raises into one sentence; its own words stay as the cause."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        architecture = header.text("general.architecture")
        if "architecture" in reason and "support" in reason:
            raise ModelNotFound(
                f"{path} has the architecture {architecture!r}, which transformers {transformers.__version__} does not read "
                f"from GGUF. {INSTEAD}."
            ) from error
        if "Unrecognized configuration class" in str(error):
            raise ModelNotFound(f"{path} is not a causal language model. Use a decoder-only model.") from error
        raise ModelNotFound(f"transformers cannot read {path}: {reason}. Get the file again, or: {INSTEAD}.") from error
