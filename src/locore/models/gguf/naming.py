"""Which names are those of GGUF files."""

from __future__ import annotations

from pathlib import Path

from locore.errors import ModelNotFound

MAGIC = b"GGUF"
SUFFIX = ".gguf"


def is_gguf(path: Path) -> bool:
    """Is this a GGUF file, by its first bytes?

    Raises:
        ModelNotFound: its name ends as that of one, but it is none, or there is no such file.
    """
    named = path.suffix.lower() == SUFFIX
    if not path.is_file():
        if named and not path.is_dir():
            raise ModelNotFound(f"There is no file {path}. Check the path.")
        return False
    try:
        with path.open("rb") as file:
            found = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise ModelNotFound(f"Cannot read {path}: {error.strerror}. Check its permissions.") from error
    if named and not found:
        raise ModelNotFound(f'{path} is no GGUF file: it does not begin with "GGUF". Get the file again.')
    return found
