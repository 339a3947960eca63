"""`load`: a model by its name."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from locore.kernel.errors import InvalidArgument, ModelNotFound
from locore.kernel.models.language_model import LanguageModel
from locore.kernel.models.validation import REMEDY
from locore.models.bundled import BUNDLED, ENGINES, LLAMACPP, PACKAGED


def load(name: str | Path, **options: Any) -> LanguageModel:
    """A language model by name.

    Args:
        name: "tiny" for the model that comes with Locore; "smollm2" for SmolLM2-135M-Instruct from a package; a folder, a GGUF
            file, or a Hugging Face name, see docs/models.md; or an engine: "http://…/v1", a vLLM server; "vllm:" and one of the
            names above, vLLM in this process; "llamacpp:" and a GGUF file, llama.cpp in this process, which is also taken for
            a GGUF file that transformers does not read; "sglang:http://…", an SGLang server.
        **options: passed on to `HuggingFaceModel.load`: device, dtype, memory_bytes, threads, steer_dtype; or to the
            engine, see docs/engines.md.

    Raises:
        InvalidArgument: no name; or no such device or dtype.
        ModelNotFound: there is no such model, its folder lacks a needed file, or its GGUF file is damaged or not understood.
        MissingExtra: the packages that read GGUF are not installed.
        EngineError: the engine is out of reach or contradicts itself.
    """
    if not isinstance(name, str | os.PathLike):
        raise InvalidArgument(f"a model is named by a text or a folder, got {type(name).__name__}; {REMEDY}.")
    # Imported below: `transformers` takes seconds, and models without it should not wait for it.
    if str(name).startswith(LLAMACPP):
        from locore.models.engines.llamacpp import open_file

        return open_file(str(name).removeprefix(LLAMACPP), **options)
    if str(name).startswith(ENGINES):
        from locore.models.engines.opening import open_engine

        return open_engine(str(name), **options)
    names = (*BUNDLED, *PACKAGED)
    near = difflib.get_close_matches(str(name).lower(), names, cutoff=0.7)
    if near and str(name) not in names and not Path(name).exists():
        raise ModelNotFound(f"There is no model {str(name)!r} here; did you mean {near[0]!r}?")
    from locore.models.gguf_header import NotInTransformers
    from locore.models.huggingface import HuggingFaceModel

    try:
        return HuggingFaceModel.load(name, **options)
    except NotInTransformers as error:
        return _in_llamacpp(name, options, error)


def load_options(device: str = "cpu", threads: int | None = None, steer_dtype: str | None = None) -> dict[str, Any]:
    """Options of `load` that were asked for: engines compute where they run, and take none that was not."""
    asked = {"device": None if device == "cpu" else device, "threads": threads, "steer_dtype": steer_dtype}
    return {name: value for name, value in asked.items() if value is not None}


def _in_llamacpp(name: str | Path, options: Mapping[str, Any], error: ModelNotFound) -> LanguageModel:
    """What transformers does not read, where llama.cpp is installed and nothing is asked of transformers alone."""
    from locore.models.engines.llamacpp import OPTIONS, open_file

    foreign = sorted(options.keys() - OPTIONS)
    if foreign:
        raise ModelNotFound(f"{error} llama.cpp may read it, but takes no option {', '.join(foreign)}.") from error
    if find_spec("llama_cpp") is None:
        raise ModelNotFound(f"{error} Or let llama.cpp read it: pip install 'locore[llamacpp]'.") from error
    return open_file(str(name), **options)
