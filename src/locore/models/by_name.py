"""`load`: a model by its name."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any

from locore.kernel.errors import InvalidArgument, ModelNotFound
from locore.kernel.models.base import LanguageModel
from locore.kernel.models.validation import REMEDY
from locore.models.bundled import BUNDLED, ENGINES, PACKAGED


def load(name: str | Path, **options: Any) -> LanguageModel:
    """A language model by name.

    Args:
        name: "tiny" for the model that comes with Locore; "smollm2" for SmolLM2-135M-Instruct from a package; a folder, a GGUF
            file, or a Hugging Face name, see docs/models.md; or an engine: "http://…/v1", a vLLM server; "vllm:" and one of the
            names above, vLLM in this process; "sglang:http://…", an SGLang server.
        **options: passed on to `HuggingFaceModel.load`: device, dtype, memory_bytes, threads; or to the engine, see
            docs/engines.md.

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
