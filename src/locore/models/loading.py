"""Reading a model and its tokenizer from a folder, the Hub or a GGUF file, quietly, with errors that help."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers

from locore.kernel.errors import InvalidArgument, LocoreWarning, MissingExtra, ModelNotFound
from locore.kernel.models.language_model import ModelInfo, Origin
from locore.models import onednn
from locore.models.bundled import located
from locore.models.gguf import Converted, open_gguf
from locore.models.gguf_header import is_gguf
from locore.models.quiet import quiet

ACCEPTED = 'a folder in Hugging Face format, a GGUF file, a name on the Hub, "tiny", or "smollm2"'
# Packages that files of models may need, by the name of their module: formats of quantised weights, and of vocabularies.
PACKAGES = {
    **{
        name: name
        for name in ("sentencepiece", "tiktoken", "blobfile", "bitsandbytes", "gptqmodel", "accelerate", "gguf", "peft")
    },
    **{
        name: name for name in ("hqq", "torchao", "aqlm", "eetq", "vptq", "optimum", "kernels", "einops", "mamba_ssm", "jinja2")
    },
    "google.protobuf": "protobuf",
    "auto_gptq": "auto-gptq",
    "awq": "autoawq",
    "compressed_tensors": "compressed-tensors",
    "fbgemm_gpu": "fbgemm-gpu-genai",
    "flash_attn": "flash-attn",
}
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
SUGGESTED = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}  # and what says nothing


@dataclass(frozen=True, eq=False)
class Source:
    """Where the parts of a model are read.

    Attributes:
        name: for people.
        place: a folder, or a name on the Hub; "" for what is in memory.
        local: is it a folder?
        origin: what a GGUF file says of itself.
        converted: a GGUF file in memory, where it could not be kept in a folder.
    """

    name: str
    place: str
    local: bool
    origin: Origin
    converted: Converted | None = None

    @property
    def where(self) -> dict[str, Any]:
        """Options of `from_pretrained`: no code of the model's is run, and no network is asked about a folder."""
        return {"trust_remote_code": False, "local_files_only": self.local}


def find_source(name: str | Path, weights: bool = True) -> Source:
    """The source of this name; a GGUF file is converted when it is seen for the first time.

    Args:
        weights: must a folder have weights, or only a tokenizer?

    Raises:
        ModelNotFound: there is no such model here, or it lacks a file.
        MissingExtra: the packages that read GGUF are not installed.
    """
    path = Path(located(name)).expanduser()
    if path.is_dir():
        if weights:
            _require_weights(path)
        _require_tokenizer(path)
        return Source(path.resolve().name, str(path), True, Origin())
    if is_gguf(path):
        opened = open_gguf(path)
        if opened.origin.caution is not None:
            warnings.warn(f"{path.name}: {opened.origin.caution}.", LocoreWarning, stacklevel=2)
        if isinstance(opened, Converted):
            return Source(path.stem, "", True, opened.origin, opened)
        return Source(path.stem, str(opened.folder), True, opened.origin)
    text = str(name)
    looks_like_path = isinstance(name, Path) or text.startswith((".", "~", os.sep))
    if looks_like_path or text.count("/") > 1 or path.exists():
        raise ModelNotFound(f"{text} is not a folder, nor a GGUF file. Give {ACCEPTED}.")
    return Source(text, text, False, Origin())


def plain_place(name: str) -> str:
    """The folder of a model for others to read, or its name on the Hub.

    Raises:
        ModelNotFound, MissingExtra: as `find_source`; or a GGUF file that could not be kept.
    """
    path = Path(located(name)).expanduser()
    if not is_gguf(path):
        return str(located(name))
    source = find_source(path)
    if source.converted is not None:
        raise ModelNotFound(
            f"{name} has to be converted into a folder first. Make room, or set LOCORE_CACHE to another folder."
        )
    return source.place


def _require_weights(folder: Path) -> None:
    converted = sorted(folder.glob("*.gguf"))
    instead = f" It has {converted[0].name}: give that file." if converted else ""
    if (folder / "adapter_config.json").is_file() and not any(folder.glob("model*.safetensors")):
        raise ModelNotFound(_of_adapter(folder))
    if not (folder / "config.json").is_file():
        raise ModelNotFound(f"{folder} has no config.json.{instead or ' Give a folder that save_pretrained wrote.'}")
    if not any(folder.glob("*.safetensors")):
        remedy = " Convert the weights: load them with transformers and call save_pretrained."
        raise ModelNotFound(
            f"{folder} has no *.safetensors file, the only format of weights in folders that Locore reads.{instead or remedy}"
        )


def _of_adapter(folder: Path) -> str:
    """What to do with a folder that peft's save_pretrained wrote."""
    try:
        base = json.loads((folder / "adapter_config.json").read_text()).get("base_model_name_or_path") or "its base model"
    except (OSError, ValueError, AttributeError):
        base = "its base model"
    return (
        f"{folder} is an adapter of {base}, not a model. Load the base with transformers, put the adapter on it with "
        f"peft.PeftModel.from_pretrained(base, {str(folder)!r}), and give both to "
        "locore.models.HuggingFaceModel.from_module(adapted, tokenizer); docs/models.md shows it."
    )


def _require_tokenizer(folder: Path) -> None:
    if not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        raise ModelNotFound(
            f"{folder} has no tokenizer (such as tokenizer.json). Save the tokenizer there with save_pretrained."
        )


def load_parts(
    name: str | Path, device: str | torch.device, dtype: torch.dtype, attn_implementation: str | None
) -> tuple[Any, Any, ModelInfo]:
    """The module, the fast tokenizer and the description of a model; see `HuggingFaceModel.load`."""
    require_device(device)
    if not isinstance(dtype, torch.dtype):
        raise InvalidArgument(f"dtype must be one of torch, such as torch.float32 or torch.bfloat16, got {dtype!r}.")
    source = find_source(name)
    if source.converted is None:
        module, tokenizer = _read(source, dtype, attn_implementation)
    else:
        module, tokenizer = source.converted.module(dtype, attn_implementation), source.converted.tokenizer
    info = described(module, source)
    module = module.to(device)
    if onednn.is_wanted() and module.device.type == "cpu" and dtype == torch.float32:
        onednn.pack(module)
    return module, tokenizer, info


def _read(source: Source, dtype: torch.dtype, attn_implementation: str | None) -> tuple[Any, Any]:
    """Module and tokenizer of a folder or of a name on the Hub."""
    with quiet():
        with _explained(source.place, "config.json"):
            config = transformers.AutoConfig.from_pretrained(source.place, **source.where)
        if config.is_encoder_decoder:  # of some, transformers would read the decoder alone
            raise ModelNotFound(
                f"{source.place} is an encoder–decoder. Load it with transformers, and hand it over with what its encoder is "
                "to read: locore.models.EncoderDecoder.of(module, tokenizer, input_ids=...)."
            )
        with _explained(source.place, "tokenizer"):
            tokenizer = transformers.AutoTokenizer.from_pretrained(source.place, use_fast=True, **source.where)
        with _explained(source.place, "safetensors weights"):
            loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
                source.place,
                config=config,
                dtype=dtype,
                use_safetensors=True,
                attn_implementation=attn_implementation,
                output_loading_info=True,
                **source.where,
            )
    module, report = loaded
    if report["missing_keys"]:
        raise ModelNotFound(
            f"The weights of {source.place} lack {sorted(report['missing_keys'])[0]} and "
            f"{len(report['missing_keys']) - 1} more. Get a complete copy of the model."
        )
    return module, tokenizer


def described(module: Any, source: Source | None = None) -> ModelInfo:
    """What a module says of itself, and what its files say."""
    source = source or Source(type(module).__name__, "", False, Origin())
    text = module.config.get_text_config()
    return ModelInfo(
        name=source.name,
        architecture=module.config.model_type,
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        vocabulary=text.vocab_size,
        context=getattr(text, "max_position_embeddings", None),
        dtype=str(module.dtype).removeprefix("torch."),
        place=source.place,
        origin=source.origin,
        sampling=_suggested(getattr(module, "generation_config", None)),
    )


def _suggested(configuration: Any) -> dict[str, Any]:
    """What a generation configuration says of sampling; only what differs from the model's own law."""
    values = {name: getattr(configuration, name, None) for name in SUGGESTED}
    return {name: value for name, value in values.items() if value is not None and value != SUGGESTED[name]}


def tokenizer_parts(name: str | Path) -> tuple[Any, int, list[int]]:
    """The fast tokenizer of a model, its number of logits, and its declared ends, without the weights.

    Raises:
        ModelNotFound: no such folder, file or name, or no tokenizer there.
        MissingExtra: the packages that read GGUF are not installed.
    """
    source = find_source(name, weights=False)
    if source.converted is not None:
        tokenizer, config, generation = source.converted.tokenizer, source.converted.config, source.converted.generation
    else:
        with quiet():
            with _explained(source.place, "tokenizer"):
                tokenizer = transformers.AutoTokenizer.from_pretrained(source.place, use_fast=True, **source.where)
            config = _if_there(transformers.AutoConfig, source)
            generation = _if_there(transformers.GenerationConfig, source)
    text = None if config is None else config.get_text_config()
    size = len(tokenizer) if text is None else text.vocab_size
    return tokenizer, size, _ends(generation, text)


def declared_ends(module: Any) -> list[int]:
    """Every EOS id that the model's files declare, in their order."""
    return _ends(getattr(module, "generation_config", None), module.config.get_text_config())


def _if_there(kind: Any, source: Source) -> Any:
    """A configuration; None where a tokenizer came without one."""
    try:
        return kind.from_pretrained(source.place, **source.where)
    except OSError:
        return None


def _ends(*configs: Any) -> list[int]:
    ends: dict[int, None] = {}
    for config in configs:
        declared = getattr(config, "eos_token_id", None)
        ids = declared if isinstance(declared, list) else [declared]
        ends.update(dict.fromkeys(i for i in ids if i is not None))
    return list(ends)


def require_device(device: str | torch.device) -> None:
    """Before gigabytes are read: can this torch compute there? If not, `InvalidArgument`."""
    try:
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InvalidArgument(
            f"This torch cannot compute on {str(device)!r}: {reason}. Use device='cpu', or a torch that is built for it."
        ) from error


@contextmanager
def _explained(source: str, what: str) -> Iterator[None]:
    """Turn what `transformers` raises into one sentence; its own words stay as the cause."""
    try:
        yield
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise ModelNotFound(
                f"{source} needs code of its own (trust_remote_code), which Locore does not run. "
                "Use a model whose architecture is part of transformers."
            ) from error
        if "Unrecognized configuration class" in str(error):
            raise ModelNotFound(f"{source} is not a causal language model. Use a decoder-only model.") from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        missing = missing_package(error)
        if missing is not None:
            raise MissingExtra(
                f"The {what} of {source} need the package {missing}: pip install {missing} ({reason})."
            ) from error
        raise ModelNotFound(f"Cannot read the {what} of {source}: {reason}. {_remedy(error)}") from error


def missing_package(error: BaseException) -> str | None:
    """The package that an error, or what led to it, says is not installed; None if it says no such thing."""
    chain: list[BaseException] = []
    after: BaseException | None = error
    while after is not None and after not in chain:
        chain.append(after)
        after = after.__cause__ or after.__context__
    for each in chain:
        named = each.name if isinstance(each, ImportError) else None
        if named and find_spec(named.partition(".")[0]) is None:
            return named.partition(".")[0]
        text = str(each).lower()
        asks = isinstance(each, ImportError) or any(word in text for word in ("install", "requires", "not found in your env"))
        for module, package in PACKAGES.items():
            if asks and re.search(rf"\b({re.escape(module)}|{re.escape(package)})\b", text) and find_spec(module) is None:
                return package
    return None


def _remedy(error: Exception) -> str:
    """What to look at: the network, where it was asked; else the files."""
    text = str(error).lower()
    if any(word in text for word in ("connect", "offline", "network", "huggingface.co", "timed out")):
        return "Check the name and the network."
    return "Check the name and the files."
