"""GGUF files as plain models: read once with `transformers`, into 32 bits, then kept as folders under the hash of the file."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
import transformers
from safetensors import SafetensorError
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from torch import Tensor

from locore.cache import ABANDONED_SECONDS, cache_folder
from locore.kernel.errors import LocoreWarning, MissingExtra, ModelNotFound
from locore.kernel.models.language_model import Origin
from locore.models.gguf_header import DamagedFile, Header, NotInTransformers, provenance, read_header
from locore.models.quiet import quiet

FORMAT = 2  # of the folders; one of another format is made again
MANIFEST = "locore.json"  # sizes and hashes of all other files, and the origin; written last
EXTRA = ("gguf", "accelerate")
INSTEAD = "Use the model in Hugging Face format, a folder with config.json and *.safetensors"
# Stretched positions that `transformers` reads from no GGUF file but those of gpt-oss; without them it is another model.
_STRETCHED = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
_OF_THE_FILE = ("quantization_config", "_model_name_or_path")  # in a configuration; not of the plain model
# How a byte-level tokenizer splits texts before it merges bytes: files only name the rule, in the names of llama.cpp, and
# `transformers` splits as GPT-2 where it does not know the name. First each digit by itself, then as GPT-2:
_SINGLE_DIGITS = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}
_AS_GPT2 = {"gpt-2", "phi-2", "roberta-bpe", "gigachat", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"}


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
    with tempfile.TemporaryDirectory() as empty, quiet(), _quickly(), _explained(path, header):
        folder, file = _alone(path, Path(empty))
        where: dict[str, Any] = {"gguf_file": file, "local_files_only": True}
        config = transformers.AutoConfig.from_pretrained(folder, **where)
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder, **where)
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, output_loading_info=True, **where, **_dense()
        )
    module, report = loaded
    if report["missing_keys"]:
        raise DamagedFile(path, f"it lacks {min(report['missing_keys'])}")
    _mend_ends(tokenizer, header)
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
        raise DamagedFile(path, "it names no architecture")
    parts = header.metadata.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        raise NotInTransformers(f"{path} is one of {parts} parts of a model. Join them with: llama-gguf-split --merge")
    for entry in header.tensors:
        try:
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(entry.kind)]
        except ValueError:
            raise NotInTransformers(
                f"{path}: {entry.name} has a format that the package gguf does not know. {INSTEAD}."
            ) from None
        if entry.start + entry.numbers // block * size > header.size:
            raise DamagedFile(path, f"it ends within {entry.name}, after {header.size:,} bytes")
    architecture = header.text("general.architecture")
    stretched = [entry.name for entry in header.tensors if entry.name in _STRETCHED]
    if header.text(f"{architecture}.rope.scaling.type") not in (None, "none"):
        stretched.append(f"{architecture}.rope.scaling")
    if stretched and architecture != "gpt-oss":
        raise NotInTransformers(
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
    return Origin(provenance(header.text), header.text("general.license"), _quantisation(header), caution)


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
def _quickly() -> Iterator[None]:
    """Without a progress bar that no setting turns off, and all fields of the file once from plain bytes, where `transformers`
    reads them three times from a memmap and names the tensors once for each part: three fifths of the time of SmolLM2."""
    import gguf

    class Reader(gguf.GGUFReader):
        """It keeps the bytes as a plain array."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, np.asarray(value) if name == "data" else value)

    with ExitStack() as stack:
        names = cache(gguf.get_tensor_name_map)
        stack.enter_context(patch.multiple(gguf, GGUFReader=cache(Reader), get_tensor_name_map=names))
        with suppress(ImportError, AttributeError):  # another version of transformers
            module = import_module("transformers.modeling_gguf_pytorch_utils")
            stack.enter_context(patch.object(module, "tqdm", partial(module.tqdm, disable=True)))
        yield


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
            raise NotInTransformers(
                f"{path} has the architecture {architecture!r}, which transformers {transformers.__version__} does not read "
                f"from GGUF. {INSTEAD}."
            ) from error
        if "Unrecognized configuration class" in str(error):
            raise ModelNotFound(f"{path} is not a causal language model. Use a decoder-only model.") from error
        raise ModelNotFound(f"transformers cannot read {path}: {reason}. Get the file again, or: {INSTEAD}.") from error


def _mend_ends(tokenizer: Any, header: Header) -> None:
    """Set the begin and the end that the file names: of a Llama, transformers before 5.18 takes the begin for the end."""
    for name in ("bos_token", "eos_token"):
        number = header.metadata.get(f"tokenizer.ggml.{name}_id")
        if isinstance(number, int) and 0 <= number < len(tokenizer):
            setattr(tokenizer, name, tokenizer.convert_ids_to_tokens(number))


def mend_splitting(tokenizer: Any, header: Header) -> str | None:
    """Set the rule that the file names, where `transformers` does not know it.

    Returns:
        A caution if nobody here knows it; None if all is well.
    """
    backend = tokenizer.backend_tokenizer
    if header.text("tokenizer.ggml.model") != "gpt2" or not isinstance(backend.pre_tokenizer, ByteLevel):
        return None
    rule = header.text("tokenizer.ggml.pre")
    if rule in _AS_GPT2:
        return None
    if rule in _SINGLE_DIGITS:
        backend.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)])
        return None
    said = "the file names no rule" if rule is None else f"the file's rule {rule!r} is unknown here"
    return f"texts are split as GPT-2 splits them ({said}), so prompts may be cut into other tokens than in training"


class Kept(NamedTuple):
    """The folder of a converted file, whole when it was looked at, and what the file says of itself."""

    folder: Path
    origin: Origin


def open_gguf(path: Path) -> Kept | Converted:
    """A GGUF file as a plain folder, converted when it is seen for the first time.

    Where nothing can be written it stays in memory, with a warning.

    Raises:
        MissingExtra, ModelNotFound: as `read`.
    """
    try:
        folder = kept_folder(path)
    except OSError as error:
        raise ModelNotFound(f"Cannot read {path}: {error.strerror}. Check the file.") from error
    intact = _intact(folder)
    if intact is not None:
        return intact
    converted = read(path)
    reason = _keep(converted, folder)
    if reason is None:
        return Kept(folder, converted.origin)
    size = sum(weight.nbytes for weight in converted.weights.values())
    warnings.warn(
        f"Cannot keep {path.name} in {folder.parent}: {reason}. The model works, but each load converts it again; "
        f"make room for {size / 1e6:,.0f} MB there, or set LOCORE_CACHE to another folder.",
        LocoreWarning,
        stacklevel=2,
    )
    return converted


def kept_folder(path: Path) -> Path:
    """Where a GGUF file with this content is kept."""
    return cache_folder() / "gguf" / _hash(path)


def _intact(folder: Path) -> Kept | None:
    """The folder, if it is exactly what was written."""
    try:
        manifest: Any = json.loads((folder / MANIFEST).read_bytes())
        if manifest["format"] != FORMAT or {file.name for file in folder.iterdir()} != {MANIFEST, *manifest["files"]}:
            return None
        if any((folder / name).stat().st_size != size for name, (size, _) in manifest["files"].items()):
            return None
        if any(_hash(folder / name) != digest for name, (_, digest) in manifest["files"].items()):
            return None
        return Kept(folder, Origin(**manifest["origin"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(converted: Converted, folder: Path) -> str | None:
    """Write a folder at once, so that nobody ever sees half of it. None if it is there; else the reason."""
    temporary = _temporary(folder)
    try:
        temporary.mkdir(parents=True)
        _remove_abandoned(folder.parent)
        converted.save(temporary)
        files = {file.name: (file.stat().st_size, _hash(file)) for file in sorted(temporary.iterdir())}
        manifest = {"format": FORMAT, "files": files, "origin": asdict(converted.origin)}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1))
        _put(temporary, folder)
    except OSError as error:
        return error.strerror or str(error)
    except SafetensorError as error:
        return str(error).rstrip(".")
    finally:
        _remove(temporary)
    return None


def _put(temporary: Path, folder: Path) -> None:
    """Give a folder its name, unless a good one has it meanwhile."""
    for last in (False, False, True):  # others may be at it too
        try:
            temporary.rename(folder)
            return
        except OSError:
            if _intact(folder) is not None:
                return
            if last or not folder.exists():
                raise
        aside = _temporary(folder)
        with suppress(FileNotFoundError):
            folder.rename(aside)
        _remove(aside)


def _temporary(folder: Path) -> Path:
    return folder.with_name(f".{folder.name[:16]}.{uuid.uuid4().hex}.tmp")


def _remove_abandoned(parent: Path) -> None:
    """Remove what killed writers left."""
    for path in parent.glob(".*.tmp"):
        with suppress(OSError):
            newest = max(file.stat().st_mtime for file in (path, *path.iterdir()))
            if newest < time.time() - ABANDONED_SECONDS:
                _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            os.unlink(path)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
