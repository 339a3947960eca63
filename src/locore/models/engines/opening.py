"""From a name to a checked model behind an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from locore.errors import EngineError, InvalidArgument, ModelNotFound
from locore.models.engines.base import Engine
from locore.models.engines.checks import TEXT, self_check
from locore.models.engines.http import JsonClient
from locore.models.engines.model import EngineModel
from locore.models.engines.sglang import SGLangServer
from locore.models.engines.vllm_local import VLLMLocal
from locore.models.engines.vllm_server import VLLMServer
from locore.models.loading import tokenizer_parts
from locore.tokenizer import Tokenizer

TOLERANCE = 0.25  # nats a token: more than rounding in 16 bits explains
TRIAL = TEXT + "Zoë paid 12.50 € for 3 naïve 東京 tickets;\n\tdef f(x): return x**2 <s> </s> 🙂"  # what tokenizers differ on


def open_vllm_server(
    address: str,
    tokenizer: str | Path | Tokenizer | None = None,
    model: str | None = None,
    tolerance: float = TOLERANCE,
    **connection: Any,
) -> EngineModel:
    """A model behind a vLLM server.

    Args:
        address: that of its API, such as http://127.0.0.1:8000/v1.
        tokenizer: of the model: a folder, a GGUF file, a Hugging Face name, or a `Tokenizer`; by default from where the
            server says it has its model.
        model: its name at the server; by default the only one there.
        tolerance: nats a token by which the server may differ from its own plain scores.
        **connection: of `JsonClient`: api_key, timeout, retries, backoff, connections.

    Raises:
        EngineError: the server is out of reach, contradicts itself or the tokenizer, or is no vLLM.
        InvalidArgument, ModelNotFound: as their messages say.
    """
    root, found, version = address.rstrip("/").rpartition("/")
    if version != "v1" or not found:
        raise InvalidArgument(f"The address of a vLLM server ends with /v1; {address!r} does not.")
    engine = VLLMServer(JsonClient(root, **connection), model)
    return _served(engine, tokenizer, tolerance)


def open_sglang_server(
    address: str, tokenizer: str | Path | Tokenizer | None = None, tolerance: float = TOLERANCE, **connection: Any
) -> EngineModel:
    """A model behind an SGLang server. This code has not been verified against a real one.

    Args:
        address: such as http://127.0.0.1:30000.
        tokenizer, tolerance, **connection: as in `open_vllm_server`.

    Raises:
        EngineError, InvalidArgument, ModelNotFound: as `open_vllm_server`.
    """
    engine = SGLangServer(JsonClient(address.rstrip("/").removesuffix("/v1"), **connection))
    return _served(engine, tokenizer, tolerance)


def _served(engine: VLLMServer | SGLangServer, tokenizer: str | Path | Tokenizer | None, tolerance: float) -> EngineModel:
    """The model behind a server, with a tokenizer that cuts texts as the server's own."""
    own = _tokenizer(engine, tokenizer if tokenizer is not None else engine.root)
    _same_ids(engine, own, engine.tokenized(TRIAL))
    return _checked(engine, own, tolerance)


def open_vllm_local(
    folder: str, tokenizer: str | Path | Tokenizer | None = None, tolerance: float = TOLERANCE, **options: Any
) -> EngineModel:
    """A model in a `vllm.LLM` of this process.

    Args:
        folder: of the model, or its Hugging Face name.
        tokenizer: as in `open_vllm_server`; by default that of the folder.
        tolerance: as in `open_vllm_server`.
        **options: passed on to `vllm.LLM`.

    Raises:
        EngineError: vLLM does not start, or contradicts itself.
        MissingExtra: vLLM is not installed.
    """
    engine = VLLMLocal(folder, **options)
    return _checked(engine, _tokenizer(engine, tokenizer if tokenizer is not None else folder), tolerance)


def _tokenizer(engine: Engine, source: str | Path | Tokenizer) -> Tokenizer:
    """The tokenizer of an engine's model, with as many tokens as its distributions have columns."""
    if isinstance(source, Tokenizer):
        own, columns = source, source.vocab_size
    else:
        try:
            fast, columns, ends = tokenizer_parts(source)
        except ModelNotFound as error:
            raise ModelNotFound(
                f"{error} Locore needs the tokenizer of {engine.name}: give its folder or name as `tokenizer`."
            ) from error
        own = Tokenizer.from_huggingface(fast, engine.vocab_size or columns, ends)
    if engine.vocab_size not in (0, columns):
        raise EngineError(
            f"The next-token distributions of {engine.name} have {engine.vocab_size} tokens, but its tokenizer is one for "
            f"{columns}. Give the `tokenizer` of the model that it serves."
        )
    engine.vocab_size = own.vocab_size
    return own


def _same_ids(engine: Engine, own: Tokenizer, theirs: list[int] | None) -> None:
    """Refuse a tokenizer that cuts a text otherwise than the engine's own, where that can be asked."""
    if theirs is None or not own.has_text:
        return
    try:
        ours = own.encode_prompt(TRIAL)
    except InvalidArgument as error:
        raise EngineError(
            f"{engine.name} cuts a text that the tokenizer here cannot spell. Give the `tokenizer` of the model that it "
            "serves; if it is this one, start the server without one of its own (--skip-tokenizer-init)."
        ) from error
    if ours != theirs:
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
        raise EngineError(
            f"{engine.name} cuts a text into other tokens than the tokenizer here, from token {at} on ({theirs[at : at + 3]} "
            f"there, {ours[at : at + 3]} here). Give the `tokenizer` of the model that it serves."
        )


def _checked(engine: Engine, tokenizer: Tokenizer, tolerance: float) -> EngineModel:
    """The model, once the engine agrees with itself."""
    if not tolerance > 0:
        raise InvalidArgument(f"tolerance must be a positive number of nats, got {tolerance}.")
    rows = None if engine.whole_rows is not None else engine.next_log_probs([[0]])
    model = EngineModel(engine, tokenizer, rows is not None and bool(rows.isfinite().all()))
    model.differences.update(self_check(model, tolerance))
    return model
