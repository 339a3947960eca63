"""`load`: a model by its name."""

from __future__ import annotations

import difflib
from importlib.resources import files
from pathlib import Path
from typing import Any

from locore.errors import LocoreError, ModelNotFound
from locore.models.base import LanguageModel

BUNDLED = ("tiny",)


def load(name: str | Path, **options: Any) -> LanguageModel:
    """A language model by name.

    Args:
        name: "tiny" for the model that comes with Locore, a folder, or a Hugging Face name.
        **options: passed on to `HuggingFaceModel.load`: device, dtype, memory_bytes.

    Raises:
        ModelNotFound: there is no such model, or its folder lacks a needed file.
        LocoreError: the name is the address of a remote engine.
    """
    if str(name).startswith(("http://", "https://")):
        raise LocoreError(
            f"{name} is the address of a remote engine; those come with a later version of "
            "Locore. Load a folder or a Hugging Face name."
        )
    near = difflib.get_close_matches(str(name), BUNDLED, cutoff=0.7)
    if near and str(name) not in BUNDLED and not Path(name).exists():
        raise ModelNotFound(f"There is no model {str(name)!r} here; did you mean {near[0]!r}?")
    # The one import inside a function: `transformers` takes seconds, and models without it
    # should not wait for it.
    from locore.models.huggingface import HuggingFaceModel

    return HuggingFaceModel.load(_bundled_folder(str(name)) or name, **options)


def _bundled_folder(name: str) -> Path | None:
    """The folder of a bundled model; None if the name is not one."""
    if name not in BUNDLED:
        return None
    folder = Path(str(files("locore"))) / "assets" / name
    if not folder.is_dir():
        raise ModelNotFound(
            f"The bundled model {name!r} is not in this installation ({folder} is missing). "
            "Install Locore from its wheel, or train it with experiments/tiny_lm."
        )
    return folder
