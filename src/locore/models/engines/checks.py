"""Does an engine agree with itself? Every road to a number is compared with the plainest one before any of them is used."""

from __future__ import annotations

import torch
from torch import Tensor

from locore.ending import absorb_scores, live_lengths
from locore.errors import EngineError, LocoreError
from locore.models.base import substituted
from locore.models.engines.model import EngineModel

LENGTH, TEXTS = 4, 2  # of what is drawn for the check
PROMPT = 160  # tokens of its prompt: more than a block of the prefix cache
TEXT = (
    "The weather had been fine for a week, and nobody in the village thought of rain. Then, on Friday evening, a small grey "
    "cloud came over the hill; by 9 o'clock it was as large as the valley, and the first drops fell on the dusty road. "
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
    if model.engine.whole_rows is None:
        rows = after.log_probs(tokens).double()
        roads["next-token distributions"] = rows.gather(2, tokens[..., None])[..., 0] - plain
        again = model.prompted(after.prompt_ids).log_probs(tokens).double()
        roads["next-token distributions, asked for again,"] = (rows.exp() * (again - rows).nan_to_num(0.0).abs()).sum(-1)
        roads["neighbours"] = _neighbours(after, tokens[0], rows[0].topk(2).indices)
    found = {road: float(difference.abs().nan_to_num(torch.inf).max()) for road, difference in roads.items()}
    worst = max(found, key=lambda road: found[road])
    if found[worst] > tolerance:
        raise EngineError(
            f"The {worst} of {model.engine.name} differ from its own plain scores by {found[worst]:.3g} nats a token (allowed: "
            f"{tolerance:g}), so one of the two is wrong and no weight could be trusted. docs/engines.md names settings that "
            "are known to do this; where rounding in 16 bits explains it, give a larger `tolerance`."
        )
    return found


def _plain(after: EngineModel, tokens: Tensor) -> Tensor:
    """f64[batch, time]: scores by the engine's plainest road."""
    eos_ids = after.tokenizer.eos_ids
    tails = [row[:length] for row, length in zip(tokens.tolist(), live_lengths(tokens, eos_ids).tolist(), strict=True)]
    found = after.engine.plain_scores([after.prompt_ids] * len(tails), tails)
    padded = [[*scores, *[0.0] * (tokens.shape[1] - len(scores))] for scores in found]
    return absorb_scores(torch.tensor(padded, dtype=torch.float64), tokens, eos_ids)


def _neighbours(after: EngineModel, tokens: Tensor, candidates: Tensor) -> Tensor:
    """f64[time, k]: difference per token; 0 where both roads exclude a neighbour."""
    plain = _plain(after, substituted(tokens, candidates).flatten(0, 1)).sum(-1).view(candidates.shape)
    found = after.neighbours(tokens, candidates)
    return torch.where(found == plain, 0.0, found - plain) / len(tokens)


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
