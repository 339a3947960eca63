"""Converted GGUF files on disk: a folder for each, found by the hash of the file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from locore.cache import ABANDONED_SECONDS, cache_folder
from locore.errors import ModelNotFound
from locore.models.gguf.reading import Converted, read
from locore.models.info import Origin

FORMAT = 1  # of the folders; one of another format is made again
MANIFEST = "locore.json"  # sizes and hashes of all other files, and the origin; written last


@dataclass(frozen=True)
class Kept:
    """A converted file.

    Attributes:
        folder: in Hugging Face format, whole when it was looked at.
        origin: what the GGUF file says of itself.
    """

    folder: Path
    origin: Origin


def opened(path: Path) -> Kept | Converted:
    """A GGUF file as a plain folder, converted when it is seen for the first time.

    Where nothing can be written it stays in memory, with a warning.

    Raises:
        MissingExtra, ModelNotFound: as `read`.
    """
    try:
        folder = kept_folder(path)
    except OSError as error:
        raise ModelNotFound(f"Cannot read {path}: {error.strerror}. Check the file.") from error
    kept = _kept(folder)
    if kept is not None:
        return kept
    converted = read(path)
    reason = _keep(converted, folder)
    if reason is None:
        return Kept(folder, converted.origin)
    size = sum(weight.nbytes for weight in converted.weights.values())
    warnings.warn(
        f"Cannot keep {path.name} in {folder.parent}: {reason}. The model works, but each load converts it again; "
        f"make room for {size / 1e6:,.0f} MB there, or set LOCORE_CACHE to another folder.",
        stacklevel=2,
    )
    return converted


def kept_folder(path: Path) -> Path:
    """Where a GGUF file with this content is kept."""
    return cache_folder() / "gguf" / _hash(path)


def _kept(folder: Path) -> Kept | None:
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
            if _kept(folder) is not None:
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
