"""From the name of a model to where its parts are read: a folder, the Hub, or a GGUF file."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locore.errors import ModelNotFound
from locore.models.bundled import located
from locore.models.gguf import Converted, is_gguf, opened
from locore.models.info import Origin

TAKEN = 'a folder in Hugging Face format, a GGUF file, a name on the Hub, "tiny", or "smollm2"'
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


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
        found = opened(path)
        if found.origin.caution is not None:
            warnings.warn(f"{path.name}: {found.origin.caution}.", stacklevel=2)
        if isinstance(found, Converted):
            return Source(path.stem, "", True, found.origin, found)
        return Source(path.stem, str(found.folder), True, found.origin)
    text = str(name)
    looks_like_path = isinstance(name, Path) or text.startswith((".", "~", os.sep))
    if looks_like_path or text.count("/") > 1 or path.exists():
        raise ModelNotFound(f"{text} is not a folder, nor a GGUF file. Give {TAKEN}.")
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
    if not (folder / "config.json").is_file():
        raise ModelNotFound(f"{folder} has no config.json.{instead or ' Give a folder that save_pretrained wrote.'}")
    if not any(folder.glob("*.safetensors")):
        remedy = " Convert the weights: load them with transformers and call save_pretrained."
        raise ModelNotFound(
            f"{folder} has no *.safetensors file, the only format of weights in folders that Locore reads.{instead or remedy}"
        )


def _require_tokenizer(folder: Path) -> None:
    if not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        raise ModelNotFound(
            f"{folder} has no tokenizer (such as tokenizer.json). Save the tokenizer there with save_pretrained."
        )
