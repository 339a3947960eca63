"""Reading a model and its tokenizer from disk or the Hub, quietly, with errors that help."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
import transformers

from locore.errors import InvalidArgument, ModelNotFound
from locore.models.onednn import pack

# Neither declares all that it documents, so their types are left open.
hub: Any = huggingface_hub.utils
logging: Any = transformers.utils.logging

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and warnings of `transformers`; all settings come back after."""
    verbosity, hub_verbosity = logging.get_verbosity(), hub.logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    hub_bars = not hub.are_progress_bars_disabled()
    logging.set_verbosity_error()
    hub.logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        hub.logging.set_verbosity(hub_verbosity)
        if bars:
            logging.enable_progress_bar()
        if hub_bars:
            hub.enable_progress_bars()


def load_parts(
    name: str | Path,
    device: str | torch.device,
    dtype: torch.dtype,
    attn_implementation: str | None,
) -> tuple[Any, Any]:
    """The module and the fast tokenizer of a model; see `HuggingFaceModel.load`."""
    folder = _folder(name)
    _require_device(device)
    if not isinstance(dtype, torch.dtype):
        raise InvalidArgument(f"dtype must be one of torch, such as torch.float32 or torch.bfloat16, got {dtype!r}.")
    source = str(name if folder is None else folder)
    where = {"trust_remote_code": False, "local_files_only": folder is not None}
    with quiet():
        with _explained(source, "config.json"):
            config = transformers.AutoConfig.from_pretrained(source, **where)
        with _explained(source, "tokenizer"):
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, use_fast=True, **where)
        with _explained(source, "safetensors weights"):
            loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
                source,
                config=config,
                dtype=dtype,
                use_safetensors=True,
                attn_implementation=attn_implementation,
                output_loading_info=True,
                **where,
            )
    module, report = loaded
    if report["missing_keys"]:
        raise ModelNotFound(
            f"The weights of {source} lack {sorted(report['missing_keys'])[0]} and "
            f"{len(report['missing_keys']) - 1} more. Get a complete copy of the model."
        )
    module = module.to(device)
    if module.device.type == "cpu" and dtype == torch.float32:
        pack(module)
    return module, tokenizer


def tokenizer_parts(name: str | Path) -> tuple[Any, int, list[int]]:
    """The fast tokenizer of a model, its number of logits, and its declared ends, without the weights.

    Raises:
        ModelNotFound: no such folder or name, or no tokenizer there.
    """
    folder = _folder(name, weights=False)
    source = str(name if folder is None else folder)
    where = {"trust_remote_code": False, "local_files_only": folder is not None}
    with quiet():
        with _explained(source, "tokenizer"):
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, use_fast=True, **where)
        config = _if_there(transformers.AutoConfig, source, where)
        generation = _if_there(transformers.GenerationConfig, source, where)
    text = None if config is None else config.get_text_config()
    size = len(tokenizer) if text is None else text.vocab_size
    return tokenizer, size, _ends(generation, text)


def declared_ends(module: Any) -> list[int]:
    """Every EOS id that the model's files declare, in their order."""
    return _ends(getattr(module, "generation_config", None), module.config.get_text_config())


def _if_there(kind: Any, source: str, where: dict[str, Any]) -> Any:
    """A configuration; None where a tokenizer came without one."""
    try:
        return kind.from_pretrained(source, **where)
    except OSError:
        return None


def _ends(*configs: Any) -> list[int]:
    ends: dict[int, None] = {}
    for config in configs:
        declared = getattr(config, "eos_token_id", None)
        ids = declared if isinstance(declared, list) else [declared]
        ends.update(dict.fromkeys(i for i in ids if i is not None))
    return list(ends)


def _folder(name: str | Path, weights: bool = True) -> Path | None:
    """The folder of this name, complete; None if it is a name on the Hub."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        if weights:
            _require_weights(folder)
        _require_tokenizer(folder)
        return folder
    text = str(name)
    looks_like_path = isinstance(name, Path) or text.startswith((".", "~", os.sep))
    if looks_like_path or text.count("/") > 1 or folder.exists():
        raise ModelNotFound(
            f'{text} is not a folder. Give the folder of a model in Hugging Face format, a name on the Hub, or "tiny".'
        )
    return None


def _require_device(device: str | torch.device) -> None:
    """Before gigabytes are read: can this torch compute there?"""
    try:
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InvalidArgument(
            f"This torch cannot compute on {str(device)!r}: {reason}. Use device='cpu', or a torch that is built for it."
        ) from error


def _require_weights(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise ModelNotFound(f"{folder} has no config.json. Give a folder that save_pretrained wrote.")
    if not any(folder.glob("*.safetensors")):
        raise ModelNotFound(
            f"{folder} has no *.safetensors file, the only format of weights that Locore reads. "
            "Convert the weights: load them with transformers and call save_pretrained."
        )


def _require_tokenizer(folder: Path) -> None:
    if not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        raise ModelNotFound(
            f"{folder} has no tokenizer (such as tokenizer.json). Save the tokenizer there with save_pretrained."
        )


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
        raise ModelNotFound(
            f"Cannot read the {what} of {source}: {str(error).strip().splitlines()[0]} "
            "Check the name, the network and the files."
        ) from error
