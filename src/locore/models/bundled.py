"""`load`: a model by its name."""

from __future__ import annotations

import difflib
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from locore.errors import InvalidArgument, ModelNotFound
from locore.models.base import LanguageModel
from locore.models.validation import REMEDY

BUNDLED = ("tiny",)
VLLM_LOCAL, SGLANG = "vllm:", "sglang:"
ENGINES = ("http://", "https://", VLLM_LOCAL, SGLANG)


def load(name: str | Path, **options: Any) -> LanguageModel:
    """A language model by name.

    Args:
        name: "tiny" for the model that comes with Locore, a folder, or a Hugging Face name; or an engine: "http://…/v1", a vLLM
            server; "vllm:" and a folder or name, vLLM in this process; "sglang:http://…", an SGLang server.
        **options: passed on to `HuggingFaceModel.load`: device, dtype, memory_bytes; or to the engine, see docs/engines.md.

    Raises:
        InvalidArgument: no name; or no such device or dtype.
        ModelNotFound: there is no such model, or its folder lacks a needed file.
        EngineError: the engine is out of reach or contradicts itself.
    """
    if not isinstance(name, str | os.PathLike):
        raise InvalidArgument(f"a model is named by a text or a folder, got {type(name).__name__}; {REMEDY}.")
    if str(name).startswith(ENGINES):
        return _open_engine(str(name), options)
    near = difflib.get_close_matches(str(name), BUNDLED, cutoff=0.7)
    if near and str(name) not in BUNDLED and not Path(name).exists():
        raise ModelNotFound(f"There is no model {str(name)!r} here; did you mean {near[0]!r}?")
    # Imported here: `transformers` takes seconds, and models without it should not wait for it.
    from locore.models.huggingface import HuggingFaceModel

    return HuggingFaceModel.load(_bundled_folder(str(name)) or name, **options)


def _open_engine(name: str, options: dict[str, Any]) -> LanguageModel:
    from locore.models.engines import opening

    if name.startswith(VLLM_LOCAL):
        where = name.removeprefix(VLLM_LOCAL)
        return opening.open_vllm_local(str(_bundled_folder(where) or where), **options)
    if name.startswith(SGLANG):
        return opening.open_sglang_server(name.removeprefix(SGLANG), **options)
    return opening.open_vllm_server(name, **options)


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
