"""Models made of models: temperature, nucleus, top-k and mixtures, each with its true density; and what is asked of a model."""

from __future__ import annotations

import hashlib
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locore.kernel.chat import Prompt
from locore.kernel.errors import InvalidArgument
from locore.kernel.limits import spent
from locore.kernel.models.cursor import Cursor
from locore.kernel.models.language_model import Drafts, LanguageModel, Wrapper, substituted
from locore.kernel.models.validation import positive, row_indices
from locore.kernel.numerics import NEG_INF, ended_before, is_end, live_lengths

_Hashes = NDArray[np.uint64]
# An odd multiplier; hashes are polynomials in it modulo 2**64 over mixed token ids.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
LIKELIEST = 512  # tokens among which a nucleus is looked for first


class Around(Wrapper):
    """A change that is the same around any model."""

    def _around(self, base: LanguageModel) -> Self:
        changed = copy(self)
        changed.base = base
        return changed

    @property
    def near(self) -> Self | None:
        """The same change of the base's."""
        near = self.base.near
        return None if near is None else self._around(near)


class Adjusted(Around):
    """A change that is the same before and behind a prompt."""

    def prompted(self, prompt: Prompt) -> Self:
        """The same change of the prompted model."""
        return self._around(self.base.prompted(prompt))

    def unprompted(self) -> Self:
        """The same change of the model before any prompt."""
        return self._around(self.base.unprompted())

    def fingerprint(self) -> str | None:
        """That of the base, and what is done to it."""
        base = self.base.fingerprint()
        settings = [f"{k}={v}" for k, v in vars(self).items() if isinstance(v, int | float)]
        return base and f"{base}-{type(self).__name__}-{'-'.join(settings)}"


class Reshaped(Adjusted):
    """A model whose next-token distributions are a function of another's; ends stay absorbing."""

    @property
    def near(self) -> Self | None:
        """The same change of the base's; none where the support is cut, as it would be cut elsewhere there."""
        return super().near if self.full_support else None

    @abstractmethod
    def _reshape(self, log_probs: Tensor) -> Tensor:
        """Normalised Float[…, vocab] from normalised Float[…, vocab]."""

    def _log_probs(self, tokens: Tensor) -> Tensor:
        return self._reshape(self.base.log_probs(tokens))

    def _begin(self, batch: int) -> Cursor:
        return CombinedCursor((self.base.begin(batch),), lambda rows: self._reshape(rows[0]))


class Tempered(Reshaped):
    """p_T(v | y_<t) ∝ p(v | y_<t)^{1/T}, token by token."""

    def __init__(self, base: LanguageModel, temperature: float) -> None:
        """A temperature below 1 sharpens, above 1 flattens.

        Raises:
            InvalidArgument: the temperature is not positive and finite.
        """
        super().__init__(base)
        if not 0 < temperature < math.inf:
            raise InvalidArgument(f"The temperature is {temperature}; give a positive number (near 0 for greedy).")
        self.temperature = temperature

    def _reshape(self, log_probs: Tensor) -> Tensor:
        # The likeliest token at 0, so that no temperature, however small, makes a NaN.
        below = log_probs - log_probs.max(-1, keepdim=True).values
        return (below / max(self.temperature, torch.finfo(log_probs.dtype).tiny)).log_softmax(-1)


def nucleus(log_probs: Tensor, p: float) -> Tensor:
    """Float[…, vocab], normalised: the likeliest tokens that together have mass p, renormalised; ties go to the lower id.

    A nucleus is small nearly everywhere, so few tokens of a row are put in order: the likeliest, or more where these are few.
    """
    rows = log_probs.reshape(-1, log_probs.shape[-1])
    many = min(LIKELIEST, rows.shape[-1])
    least, size, whole = _boundary(rows, p, many)
    while not bool(whole.all()):
        many = min(8 * many, rows.shape[-1])
        short = (~whole).nonzero()[:, 0]
        least[short], size[short], whole[short] = _boundary(rows[short], p, many)
    above, ties = rows > least, rows == least
    inside = above | (ties & (ties.cumsum(-1) <= size - above.sum(-1, keepdim=True)))
    return rows.masked_fill(~inside, NEG_INF).log_softmax(-1).view(log_probs.shape)


def _boundary(rows: Tensor, p: float, many: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of nuclei among so many of the likeliest tokens: Float[rows, 1] the least log p in each, Long[rows, 1] its size, and
    Bool[rows] whether it is all there.
    """
    values = rows.topk(many).values
    mass = values.double().exp()
    inside = mass.cumsum(-1) - mass < p
    inside[:, 0] = True
    size = inside.sum(-1, keepdim=True)
    return values.gather(-1, size - 1), size, (size[:, 0] < many) | (many == rows.shape[-1])


class TopP(Reshaped):
    """Nucleus sampling: the likeliest tokens that together have mass p, renormalised.

    Its support is cut, so it is no law to draw proposals from unless mixed with a full one.
    """

    def __init__(self, base: LanguageModel, p: float) -> None:
        """The token that reaches the mass belongs to the nucleus; ties go to the lower id.

        Raises:
            InvalidArgument: p is not in (0, 1].
        """
        super().__init__(base)
        if not 0 < p <= 1:
            raise InvalidArgument(f"p is {p}; give a number above 0 and at most 1.")
        self.p = p
        self.full_support = base.full_support and p == 1

    def _reshape(self, log_probs: Tensor) -> Tensor:
        if self.p == 1:
            return log_probs
        return nucleus(log_probs, self.p)


class TopK(Reshaped):
    """The k likeliest tokens, renormalised. Its support is cut; see `TopP`."""

    def __init__(self, base: LanguageModel, k: int) -> None:
        """Ties go to the lower id.

        Raises:
            InvalidArgument: k is below 1.
        """
        super().__init__(base)
        self.k = positive(k, "k")
        self.full_support = base.full_support and k >= base.vocab_size

    def _reshape(self, log_probs: Tensor) -> Tensor:
        order = log_probs.sort(dim=-1, descending=True, stable=True).indices[..., : self.k]
        highest = log_probs.gather(-1, order).log_softmax(-1)
        return torch.full_like(log_probs, NEG_INF).scatter_(-1, order, highest)


class Mixture(Wrapper):
    """(1−w)·first + w·second, token by token.

    A little of the full model in a nucleus, `Mixture(TopP(model, 0.9), model, 0.1)`, gives a law with full support that
    proposals may be drawn from.

    Attributes:
        base: the first model.
    """

    def __init__(self, first: LanguageModel, second: LanguageModel, weight: float) -> None:
        """A mixture with this weight of the second model.

        Raises:
            InvalidArgument: the weight is not in [0, 1], or the vocabularies differ.
        """
        if not 0 <= weight <= 1:
            raise InvalidArgument(f"The weight is {weight}; give a number from 0 to 1.")
        if first.tokenizer != second.tokenizer:
            raise InvalidArgument("Only models with the same tokenizer can be mixed.")
        super().__init__(first)
        self.second = second
        self.weight = weight
        self.full_support = (first.full_support and weight < 1) or (second.full_support and weight > 0)

    def prompted(self, prompt: Prompt) -> Mixture:
        """The mixture of the two prompted models; each reads a chat by its own template."""
        return Mixture(self.base.prompted(prompt), self.second.prompted(prompt), self.weight)

    def unprompted(self) -> Mixture:
        """The mixture of the two models before any prompt."""
        return Mixture(self.base.unprompted(), self.second.unprompted(), self.weight)

    def fingerprint(self) -> str | None:
        """Those of both, and the weight."""
        parts = self.base.fingerprint(), self.second.fingerprint()
        return f"{parts[0]}-{parts[1]}-{self.weight}" if all(parts) else None

    def _mix(self, rows: Sequence[Tensor]) -> Tensor:
        logs = [math.log(weight) if weight else NEG_INF for weight in (1 - self.weight, self.weight)]
        return torch.logaddexp(rows[0] + logs[0], rows[1].to(rows[0].device) + logs[1])

    def require_length(self, length: int) -> None:
        """As both."""
        super().require_length(length)
        self.second.require_length(length)

    def _log_probs(self, tokens: Tensor) -> Tensor:
        return self._mix([self.base.log_probs(tokens), self.second.log_probs(tokens)])

    def _begin(self, batch: int) -> Cursor:
        return CombinedCursor((self.base.begin(batch), self.second.begin(batch)), self._mix)


class CombinedCursor(Cursor):
    """Cursors that advance together, and a function of their distributions."""

    def __init__(self, cursors: tuple[Cursor, ...], combine: Callable[[Sequence[Tensor]], Tensor]) -> None:
        self._cursors = cursors
        self._combine = combine

    @property
    def log_probs(self) -> Tensor:
        """The function of the distributions of all cursors."""
        return self._combine([cursor.log_probs for cursor in self._cursors])

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> CombinedCursor:
        """All of them, by the same tokens; see `Cursor.advance`."""
        cursors = tuple(cursor.advance(tokens, parents) for cursor in self._cursors)
        return CombinedCursor(cursors, self._combine)


class Meter:
    """What has been asked so far, shared by a counted model and its prompted forms."""

    def __init__(self) -> None:
        self.lm_tokens = self.passes = 0
        self.seconds = 0.0
        self.is_again = False  # contexts were counted before; passes are counted all the same
        self._contexts: list[_Hashes] = []

    def count(self, contexts: _Hashes, passes: int = 1) -> None:
        """A next-token distribution was asked for after each of these contexts, in so many passes after each other."""
        if self.is_again:
            self.passes += passes
            return
        self.lm_tokens += len(contexts)
        self.passes += passes if len(contexts) else 0
        spent(len(contexts))
        self._contexts.append(np.unique(contexts))

    @property
    def lm_contexts(self) -> int:
        """How many of the contexts were distinct."""
        if self._contexts:
            self._contexts = [np.unique(np.concatenate(self._contexts))]
        return sum(map(len, self._contexts))

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time that passes inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start


class Counted(Around):
    """A model that counts what is asked of it; before any prompt, its base is not counted.

    Counted is every next-token distribution after at least one generated token and before the end: what the method needs, not
    what an implementation evaluates. Wrap last: inside another wrapper it counts what that wrapper asks for.
    """

    def __init__(self, base: LanguageModel, meter: Meter | None = None, prompt_hash: int = 0) -> None:
        """Count from zero, or on a meter that is shared with others.

        Args:
            base: the model that is asked.
            meter: where to count; a new one by default.
            prompt_hash: 64 bits that tell this prompt from others on the same meter.
        """
        super().__init__(base)
        self.meter = Meter() if meter is None else meter
        self._prompt_hash = np.uint64(prompt_hash)

    @property
    def lm_tokens(self) -> int:
        """Next-token distributions asked for."""
        return self.meter.lm_tokens

    @property
    def lm_contexts(self) -> int:
        """Distinct ones (by a 64-bit hash of the tokens and the prompt)."""
        return self.meter.lm_contexts

    @property
    def passes(self) -> int:
        """Passes after each other, behind that over the prompt; a step of many rows is one, so is a sequence that is read."""
        return self.meter.passes

    @property
    def model_seconds(self) -> float:
        """Wall-clock seconds inside the model."""
        return self.meter.seconds

    def account(self) -> dict[str, Any]:
        """All of them, by their names."""
        names = ("lm_tokens", "lm_contexts", "passes", "model_seconds")
        return {name: getattr(self, name) for name in names}

    def prompted(self, prompt: Prompt) -> Counted:
        """The prompted model, on the same count."""
        with self.meter.timed():
            after = self.base.prompted(prompt)
        text = repr((int(self._prompt_hash), prompt if isinstance(prompt, str) else list(prompt)))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return Counted(after, self.meter, int.from_bytes(digest, "little"))

    def log_probs(self, tokens: Tensor) -> Tensor:
        """As the base; counts every position but the first of each row, up to its end."""
        with self.meter.timed():
            rows = self.base.log_probs(tokens)
        self._count_along(torch.as_tensor(tokens))
        return rows

    def token_scores(self, tokens: Tensor) -> Tensor:
        """As the base; counts as `log_probs`."""
        with self.meter.timed():
            scores = self.base.token_scores(tokens)
        self._count_along(torch.as_tensor(tokens))
        return scores

    def sample(self, num: int, length: int, seed: int | torch.Generator | None = None, keep_log_probs: bool = False) -> Drafts:
        """As the base; counts as `log_probs` of what was drawn."""
        with self.meter.timed():
            drafts = self.base.sample(num, length, seed, keep_log_probs)
        longest = int(live_lengths(drafts.tokens, self.tokenizer.eos_ids).max())
        self._count_along(drafts.tokens, passes=max(1, longest - 1))
        return drafts

    def neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        """As the base; counts the sequence, and of each neighbour what it does not share."""
        with self.meter.timed():
            scores = self.base.neighbours(tokens, candidates)
        tokens, candidates = torch.as_tensor(tokens), torch.as_tensor(candidates)
        self._count_along(tokens[None])
        sequences = substituted(tokens, candidates)
        differs = torch.arange(len(tokens)) > torch.arange(len(tokens))[:, None]
        asked = differs[:, None, :] & (candidates != tokens[:, None])[..., None]
        self._count_along(sequences.flatten(0, 1), asked.flatten(0, 1), len(tokens))
        return scores

    def begin(self, batch: int) -> Cursor:
        """As the base; each row that is fed a token and has not ended counts once."""
        with self.meter.timed():
            inner = self.base.begin(batch)
        start = np.full(batch, self._prompt_hash, dtype=np.uint64)
        ended = torch.zeros(batch, dtype=torch.bool)
        return _CountedCursor(inner, self.meter, self.tokenizer.eos_ids, start, ended)

    def _log_probs(self, tokens: Tensor) -> Tensor:
        return self.base.log_probs(tokens)

    def _count_along(self, tokens: Tensor, asked: Tensor | None = None, passes: int = 1) -> None:
        """Count positions t ≥ 1 of Long[batch, time] up to the end, only those `asked` if given."""
        live = ~ended_before(tokens, self.tokenizer.eos_ids)
        live = live if asked is None else live & asked
        hashes = np.full(tokens.shape, self._prompt_hash, dtype=np.uint64)
        for step in range(1, tokens.shape[1]):
            hashes[:, step] = _extended(hashes[:, step - 1], tokens[:, step - 1])
        self.meter.count(hashes[:, 1:][live[:, 1:].numpy()], passes)


class _CountedCursor(Cursor):
    def __init__(self, inner: Cursor, meter: Meter, eos_ids: tuple[int, ...], contexts: _Hashes, ended: Tensor) -> None:
        self._inner = inner
        self._meter = meter
        self._eos_ids = eos_ids
        self._contexts = contexts
        self._ended = ended

    @property
    def log_probs(self) -> Tensor:
        with self._meter.timed():
            return self._inner.log_probs

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> _CountedCursor:
        with self._meter.timed():
            inner = self._inner.advance(tokens, parents)
        tokens = torch.as_tensor(tokens)
        rows = row_indices(parents, len(tokens), len(self._ended))
        contexts = _extended(self._contexts[rows.numpy()], tokens)
        ended = self._ended[rows] | is_end(tokens, self._eos_ids)
        self._meter.count(contexts[~ended.numpy()])
        return _CountedCursor(inner, self._meter, self._eos_ids, contexts, ended)


def _extended(contexts: _Hashes, tokens: Tensor) -> _Hashes:
    """Hashes of contexts that are one token longer."""
    mixed = tokens.numpy().astype(np.uint64) + _MULTIPLIER
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return contexts * _MULTIPLIER + (mixed ^ (mixed >> np.uint64(31)))


@contextmanager
def again(model: LanguageModel) -> Iterator[None]:
    """What is asked of a counted model inside was asked of its near model before: LM tokens are not counted twice."""
    while isinstance(model, Wrapper) and not isinstance(model, Counted):
        model = model.base
    if not isinstance(model, Counted):
        yield
        return
    model.meter.is_again = True
    try:
        yield
    finally:
        model.meter.is_again = False
