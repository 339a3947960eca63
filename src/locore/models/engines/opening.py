"""From a name to a model behind an engine. Every road to a number is compared with the plainest one before any is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locore.kernel.errors import EngineError, InvalidArgument, LocoreError, ModelNotFound
from locore.kernel.models.language_model import substituted
from locore.kernel.numerics import absorb_scores, live_lengths
from locore.kernel.tokenizer import Tokenizer
from locore.models.bundled import SGLANG, VLLM_LOCAL
from locore.models.engines.model import Engine, EngineModel, require_options
from locore.models.engines.sglang import SGLangServer
from locore.models.engines.vllm_local import VLLMLocal
from locore.models.engines.vllm_server import VLLMServer
from locore.models.loading import plain_place, tokenizer_parts

CONNECTION = ("model", "api_key", "timeout", "retries", "backoff", "connections", "tokenizer", "tolerance")  # SGLang: no model
LENGTH, TEXTS = 4, 2  # of what is drawn for the check
PROMPT = 160  # tokens of its prompt: more than a block of the prefix cache
TEXT = (
    "The weather had been fine for a week, and nobody in the village thought of rain. Then, on Friday evening, a small grey "
    "cloud came over the hill; by 9 o'clock it was as large as the valley, and the first drops fell on the dusty road. "
)
TOLERANCE = 0.25  # nats a token: more than rounding in 16 bits explains
TRIAL = TEXT + "Zoë paid 12.50 € for 3 naïve 東京 tickets;\n\tdef f(x): return x**2 <s> </s> 🙂"  # what tokenizers differ on


def open_engine(
    name: str, tokenizer: str | Path | Tokenizer | None = None, tolerance: float = TOLERANCE, **options: Any
) -> EngineModel:
    """A model behind an engine.

    Args:
        name: the address of a vLLM server, such as http://127.0.0.1:8000/v1; that of an SGLang server after "sglang:"; or a
            model after "vllm:", for vLLM in this process.
        tokenizer: of the model: a folder, a GGUF file, a Hugging Face name, or a `Tokenizer`; by default from where the engine
            has its model.
        tolerance: nats a token by which the engine may differ from its own plain scores.
        **options: of the engine: see `VLLMServer`, `SGLangServer` and `VLLMLocal`.

    Raises:
        EngineError: the engine is out of reach, does not start, or contradicts itself or the tokenizer.
        MissingExtra: vLLM or urllib3 is not installed.
        InvalidArgument, ModelNotFound: as their messages say.
    """
    if not tolerance > 0:
        raise InvalidArgument(f"tolerance must be a positive number of nats, got {tolerance}.")
    if not name.startswith(VLLM_LOCAL):
        require_options("The server", options, CONNECTION[name.startswith(SGLANG) :])
    engine: Engine
    if name.startswith(VLLM_LOCAL):
        engine = VLLMLocal(plain_place(name.removeprefix(VLLM_LOCAL)), **options)
    elif name.startswith(SGLANG):
        engine = SGLangServer(name.removeprefix(SGLANG), **options)
    else:
        engine = VLLMServer(name, **options)
    own = _tokenizer(engine, engine.root if tokenizer is None else tokenizer)
    _require_same_ids(engine, own)
    rows = None if engine.no_whole_rows is not None else engine.next_log_probs([[0]])
    model = EngineModel(engine, own, rows is not None and bool(rows.isfinite().all()))
    model.differences.update(self_check(model, tolerance))
    return model


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


def _require_same_ids(engine: Engine, own: Tokenizer) -> None:
    """Refuse a tokenizer that cuts a text otherwise than the engine's own, where that can be asked."""
    theirs = engine.tokenized(TRIAL)
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


def self_check(model: EngineModel, tolerance: float) -> dict[str, float]:
    """Compare what the engine says of a few tokens on all its roads with its own plain scores.

    Returns:
        For each road the largest difference in nats per token; of whole distributions that were asked for twice, the mean
        difference under the distribution.

    Raises:
        EngineError: a difference above the tolerance, or an answer that is no probability.
    """
    after = model.prompted(_trial_prompt(model))
    drafts = after.sample(TEXTS, LENGTH, seed=0)
    tokens, plain = drafts.tokens, _plain(after, drafts.tokens)
    roads = {"sampled tokens": drafts.token_scores - plain, "scores": after.token_scores(tokens) - plain}
    if model.engine.no_whole_rows is None:
        rows = after.log_probs(tokens).double()
        roads["next-token distributions"] = rows.gather(2, tokens[..., None])[..., 0] - plain
        again = model.prompted(after.prompt_ids).log_probs(tokens).double()
        roads["next-token distributions, asked for again,"] = (rows.exp() * (again - rows).nan_to_num(0.0).abs()).sum(-1)
        roads["neighbours"] = _neighbours(after, tokens[0], rows[0].topk(2).indices)
    nats = {road: float(difference.abs().nan_to_num(torch.inf).max()) for road, difference in roads.items()}
    worst = max(nats, key=lambda road: nats[road])
    if nats[worst] > tolerance:
        raise EngineError(
            f"The {worst} of {model.engine.name} differ from its own plain scores by {nats[worst]:.3g} nats a token (allowed: "
            f"{tolerance:g}), so one of the two is wrong and no weight could be trusted. docs/engines.md names settings that "
            "are known to do this; where rounding in 16 bits explains it, give a larger `tolerance`."
        )
    return nats


def _plain(after: EngineModel, tokens: Tensor) -> Tensor:
    """f64[batch, time]: scores by the engine's plainest road."""
    eos_ids = after.tokenizer.eos_ids
    tails = [row[:length] for row, length in zip(tokens.tolist(), live_lengths(tokens, eos_ids).tolist(), strict=True)]
    rows = after.engine.plain_scores([after.prompt_ids] * len(tails), tails)
    padded = [[*scores, *[0.0] * (tokens.shape[1] - len(scores))] for scores in rows]
    return absorb_scores(torch.tensor(padded, dtype=torch.float64), tokens, eos_ids)


def _neighbours(after: EngineModel, tokens: Tensor, candidates: Tensor) -> Tensor:
    """f64[time, k]: difference per token; 0 where both roads exclude a neighbour."""
    plain = _plain(after, substituted(tokens, candidates).flatten(0, 1)).sum(-1).view(candidates.shape)
    scores = after.neighbours(tokens, candidates)
    return torch.where(scores == plain, 0.0, scores - plain) / len(tokens)


def _trial_prompt(model: EngineModel) -> list[int]:
    """Ids of some ordinary text; any ids for a vocabulary that cannot spell it."""
    context = model.engine.context
    longest = PROMPT if context is None else min(PROMPT, max(1, context - LENGTH))
    try:
        ids = model.tokenizer.encode_prompt(4 * TEXT)
    except LocoreError:
        usable = [i for i in range(model.vocab_size) if i not in model.tokenizer.eos_ids]
        ids = (usable * longest)[:longest]
    return ids[:longest]
