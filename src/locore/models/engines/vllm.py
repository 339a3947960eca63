"""vLLM, wherever it runs: which of its requests gives which probabilities.

Four roads lead to a score. `prompt_logprobs` reads the whole sequence and never the prefix cache: plain, and the reference.
One generated token with `logprobs=-1` gives the whole distribution after a prefix, which comes from the cache. Tokens that the
processor `ForcedTokens` makes it generate are scored one by one after a prefix from the cache. In one process with us, the
processor `LiveRows` hands over whole distributions as they are, on the model's device, and their requests go on from there.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from locore.kernel.errors import CannotScore, EngineError, InvalidArgument, MissingExtra
from locore.models.engines.http import JsonClient
from locore.models.engines.model import FORCED, NEUTRAL, ROUNDING, Engine, Ids, Refused, parsed_log_probs, whole_row

if TYPE_CHECKING:
    from locore.models.engines.live import Live  # which needs vLLM

CHOSEN = 128  # ids for which vLLM gives log-probabilities in one request
DRAWN = 1024  # texts in one request
PROCESSOR = "locore.models.engines.forcing:ForcedTokens"
LIVE_ROWS = "locore.models.engines.live:LiveRows"
_LOCAL_ROW_NUMBERS = 2**22  # log-probabilities that are held at once, by vLLM as Python objects
_SERVED_ROW_NUMBERS = 2**18  # log-probabilities in one answer, some 30 bytes each
_PROMPTS = 64  # in one request, which the server works on together
_TOKEN = "token_id:"


@dataclass(frozen=True)
class Completion:
    """What vLLM generated after one prompt, once.

    Attributes:
        ids: of the generated tokens.
        scores: their log-probabilities.
        tops: for each, the log-probabilities that were asked for, by id.
        prompt: the same for each token of the prompt; None for the first of them, and where they were not asked for.
    """

    ids: list[int]
    scores: list[Any]
    tops: list[dict[int, Any]]
    prompt: list[dict[int, Any] | None] | None = None


@dataclass(frozen=True)
class CompletionRequest:
    """One prompt, and settings beside the neutral ones; `forced` are tokens for `ForcedTokens`."""

    prompt: Ids
    settings: Mapping[str, Any]
    forced: Ids | None = None


class VLLM(Engine):
    """A model in vLLM; a subclass says how requests get there."""

    draws = True

    @abstractmethod
    def _ask(self, requests: Sequence[CompletionRequest], rows: bool = False) -> list[list[Completion]]:
        """The answers to each request; `rows` says that they are large.

        Raises:
            EngineError: as its message says.
        """

    def probe(self) -> None:
        """What this one can do, by asking: whole distributions, and forced tokens; and how many tokens there are."""
        try:
            top = self._complete([CompletionRequest([0], {"max_tokens": 1, "logprobs": -1})], rows=True)[0].tops[0]
        except Refused as refusal:
            if refusal.status != 400:
                raise
            self.no_whole_rows = refusal.reason
            return
        self.vocab_size = len(top)
        whole_row(top, self.vocab_size, self.name)
        trial = [min(top, key=top.__getitem__)] * 3  # nothing that it would draw by itself
        try:
            self.reuses_prefix = self._complete([self._forcing([0], trial)])[0].ids == trial
        except Refused as refusal:
            if refusal.status != 400:
                raise

    def next_log_probs(self, prefixes: Sequence[Ids]) -> Tensor:
        """Float[prefix, vocab]; one request for each prefix, which is read from the cache as far as it is there."""
        self._require_rows()
        requests = [CompletionRequest(prefix, {"max_tokens": 1, "logprobs": -1}) for prefix in prefixes]
        answers = self._complete(requests, rows=True)
        return torch.stack([whole_row(answer.tops[0], self.vocab_size, self.name) for answer in answers])

    def chosen_log_probs(self, prefixes: Sequence[Ids], chosen: Sequence[Ids]) -> Tensor:
        """Float[prefix, k]; as `next_log_probs`, but only the chosen ids travel."""
        self._require_rows()
        parts = [
            (prefix, ids[at : at + CHOSEN])
            for prefix, ids in zip(prefixes, chosen, strict=True)
            for at in range(0, len(ids), CHOSEN)
        ]
        answers = self._complete([self._choosing(prefix, sorted(set(ids))) for prefix, ids in parts])
        found = [self._log_probs_of(answer.tops[0], ids) for answer, (_, ids) in zip(answers, parts, strict=True)]
        return torch.tensor([score for scores in found for score in scores]).view(len(prefixes), -1)

    def tail_scores(self, prefixes: Sequence[Ids], tails: Sequence[Ids]) -> list[list[float]]:
        """Log p of each token of each tail: by forcing them where that is possible, else plainly."""
        if not self.reuses_prefix:
            return self.plain_scores(prefixes, tails)
        requests = [self._forcing(prefix, tail) for prefix, tail in zip(prefixes, tails, strict=True)]
        answers = self._complete(requests)
        for answer, tail in zip(answers, tails, strict=True):
            if answer.ids != list(tail):
                raise EngineError(f"{self.name} was to generate the tokens {list(tail)} and generated {answer.ids}.")
        return [parsed_log_probs(answer.scores, self.name) for answer in answers]

    def plain_scores(self, prefixes: Sequence[Ids], tails: Sequence[Ids]) -> list[list[float]]:
        """Log p of each token of each tail, read with its prefix from the first token on."""
        whole = [[*prefix, *tail] for prefix, tail in zip(prefixes, tails, strict=True)]
        answers = self._complete([CompletionRequest(ids, {"max_tokens": 1, "prompt_logprobs": 0}) for ids in whole])
        return [self._prompt_log_probs(answer, ids, len(tail)) for answer, ids, tail in zip(answers, whole, tails, strict=True)]

    def draw(self, prefix: Ids, num: int, length: int, seed: int, eos_ids: Ids) -> tuple[list[list[int]], list[list[float]]]:
        """Texts drawn by vLLM itself; number i has the seed `seed` + i, so few are the first of many."""
        settings = {"max_tokens": length, "logprobs": 0, "stop_token_ids": list(eos_ids)}
        parts = [{**settings, "n": min(DRAWN, num - at), "seed": seed + at} for at in range(0, num, DRAWN)]
        answers = [answer for found in self._ask([CompletionRequest(prefix, part) for part in parts]) for answer in found]
        if len(answers) != num:
            raise EngineError(f"{self.name} was to draw {num} texts and drew {len(answers)}.")
        for answer in answers:
            ends = [at for at, token in enumerate(answer.ids) if token in eos_ids] or [length - 1]
            known = all(0 <= token < self.vocab_size for token in answer.ids)
            if not (known and len(answer.scores) == len(answer.ids) == ends[0] + 1 <= length):
                raise EngineError(
                    f"{self.name} was to draw {length} tokens or up to an end ({list(eos_ids)}), and drew {answer.ids}. If its "
                    "model has other ends, give a `tokenizer` whose files declare them."
                )
        return [a.ids for a in answers], [parsed_log_probs(a.scores, self.name) for a in answers]

    def _choosing(self, prefix: Ids, ids: Ids) -> CompletionRequest:
        return CompletionRequest(prefix, {"max_tokens": 1, "logprobs": len(ids), "logprob_token_ids": ids})

    def _forcing(self, prefix: Ids, tail: Ids) -> CompletionRequest:
        return CompletionRequest(prefix, {"max_tokens": len(tail), "logprobs": 0}, tail)

    def _complete(self, requests: Sequence[CompletionRequest], rows: bool = False) -> list[Completion]:
        """The only answer to each request, as long as it was asked for, with log-probabilities if they were asked for."""
        found = self._ask(requests, rows)
        for request, answers in zip(requests, found, strict=True):
            wanted = request.settings["max_tokens"]
            scored = wanted if "logprobs" in request.settings else 0
            got = [(len(a.ids), len(a.scores), len(a.tops)) for a in answers]
            if got != [(wanted, scored, scored)]:
                raise EngineError(
                    f"{self.name} was asked for {wanted} tokens and {scored} log-probabilities, and gave {got} (tokens, "
                    "log-probabilities, tables of them)."
                )
        return [answers[0] for answers in found]

    def _log_probs_of(self, found: Mapping[int, Any], ids: Ids) -> list[float]:
        """Checked log-probabilities of these ids."""
        missing = [token for token in ids if token not in found]
        if missing:
            raise EngineError(f"{self.name} gave no log-probability for the token {missing[0]}, which was asked for.")
        return parsed_log_probs((found[token] for token in ids), self.name)

    def _prompt_log_probs(self, answer: Completion, ids: Ids, length: int) -> list[float]:
        """Checked log-probabilities of the last `length` tokens of the prompt."""
        rows = answer.prompt
        if rows is None or len(rows) != len(ids):
            raise EngineError(
                f"{self.name} read {len(ids)} tokens and gave log-probabilities of {0 if rows is None else len(rows)}."
            )
        start = len(ids) - length
        return [self._log_probs_of(row or {}, [token])[0] for row, token in zip(rows[start:], ids[start:], strict=True)]

    def _require_rows(self) -> None:
        if self.no_whole_rows is not None:
            raise CannotScore(
                f"{self.name} gives no whole next-token distributions ({self.no_whole_rows}). Start it with --max-logprobs -1, "
                'or use the only sampler that needs none, sampler="rejection".'
            )


class VLLMLocal(VLLM):
    """A model in a `vllm.LLM`.

    Attributes:
        llm: the `vllm.LLM`.
        live: hands over whole distributions without writing them as numbers; None where the model is in another process.
    """

    live: Live | None

    def __init__(self, folder: str, **options: Any) -> None:
        """Load a model, with whole distributions, the prefix cache and forced tokens switched on.

        Args:
            folder: of the model, or its Hugging Face name.
            **options: passed on to `vllm.LLM`: dtype, tensor_parallel_size, gpu_memory_utilization, …

        Raises:
            EngineError: vLLM cannot serve it so.
            MissingExtra: vLLM is not installed.
        """
        try:
            import vllm
        except ImportError as error:
            raise MissingExtra(f"vLLM is not installed here ({error}): pip install vllm, or use a server of it.") from None
        self.name, self.root = f"vLLM with {folder}", folder
        usual = {
            "max_logprobs": -1,
            "enable_prefix_caching": True,
            # A part of a prompt would be taken for all of it, and a step that is still going on for the last one.
            "enable_chunked_prefill": False,
            "async_scheduling": False,
            "logits_processors": [PROCESSOR, LIVE_ROWS],
        }
        try:
            with _one_process():
                self.llm = vllm.LLM(model=folder, **{**usual, **options})
        except Exception as error:  # an engine in a process of its own reports in any way that it did not start
            raise EngineError(f"{self.name} did not start (vLLM {vllm.__version__}): {error}") from error
        self._params = partial(_sampling_params, vllm.SamplingParams)
        self._lock, self.live = threading.RLock(), None
        context = self.llm.llm_engine.model_config.max_model_len - 1
        self.context, self.live = context, self._found_live(context)
        self.probe()
        if self.live is not None:
            first = self.live.rows([(0,)])
            self.device, self.vocab_size, self.no_whole_rows = first.device, first.shape[1], None

    def _found_live(self, context: int) -> Live | None:
        """Does vLLM compute in this process, and one whole prompt in one step?"""
        from locore.models.engines.live import LIVE, Live

        live = Live(self.llm.llm_engine, partial(_going_on, self._params, context))
        self._outputs([(0,)], [self._params({"max_tokens": 1, "temperature": 0.0}, {LIVE: [live.number, 0]})])
        settings = self.llm.llm_engine.vllm_config.scheduler_config
        if not live.is_here or settings.enable_chunked_prefill or settings.async_scheduling:
            return None
        weakref.finalize(self, live.close).atexit = False
        return live

    def next_log_probs(self, prefixes: Sequence[Ids]) -> Tensor:
        """Float[prefix, vocab] on the model's device, if the model is in this very process; else as `VLLM` does it."""
        if self.live is None:
            return super().next_log_probs(prefixes)
        with self._lock:
            rows = self.live.rows(prefixes)
        if rows.shape[1] != self.vocab_size or not bool((rows <= ROUNDING).all()):  # NaN is not
            raise EngineError(f"{self.name} gave what is no log of a probability. Nothing was computed from it.")
        return rows

    def chosen_log_probs(self, prefixes: Sequence[Ids], chosen: Sequence[Ids]) -> Tensor:
        """Float[prefix, k] on the CPU; of whole distributions where these need not be written."""
        if self.live is None:
            return super().chosen_log_probs(prefixes, chosen)
        rows = self.next_log_probs(prefixes)
        return rows.gather(1, torch.tensor(chosen, device=rows.device)).cpu()

    def _ask(self, requests: Sequence[CompletionRequest], rows: bool = False) -> list[list[Completion]]:
        most = max(1, _LOCAL_ROW_NUMBERS // max(1, self.vocab_size)) if rows else len(requests)  # 0 until that is known
        parts = [requests[start : start + most] for start in range(0, len(requests), most)]
        return [answers for part in parts for answers in self._generate(part)]

    def _generate(self, requests: Sequence[CompletionRequest]) -> Iterator[list[Completion]]:
        forced = [None if request.forced is None else {FORCED: list(request.forced)} for request in requests]
        params = [self._params(request.settings, extra) for request, extra in zip(requests, forced, strict=True)]
        for output in self._outputs([request.prompt for request in requests], params):
            prompt = None if output.prompt_logprobs is None else [_by_id(row) for row in output.prompt_logprobs]
            yield [_completion(completion, prompt) for completion in output.outputs]

    def _outputs(self, prompts: Sequence[Ids], params: list[Any]) -> list[Any]:
        """What vLLM answers, in its own classes."""
        try:
            # In one process with us it draws from torch's global generator.
            with self._lock, torch.random.fork_rng(devices=[]):
                if self.live is not None:
                    self.live.release()
                found = list(self.llm.generate([{"prompt_token_ids": list(ids)} for ids in prompts], params, use_tqdm=False))
        except ValueError as error:  # what a server answers with 400
            raise Refused(f"{self.name} refused a request: {error}", 400, str(error)) from error
        if [list(one.prompt_token_ids) for one in found] != [list(ids) for ids in prompts]:
            raise EngineError(
                f"{self.name} gave answers to other requests, perhaps to some that were interrupted; load it anew."
            )
        return found


def _sampling_params(kind: Any, settings: Mapping[str, Any], extra: dict[str, Any] | None) -> Any:
    return kind(**{**NEUTRAL, **settings}, extra_args=extra, detokenize=False, flat_logprobs=True)


def _going_on(params: Callable[..., Any], context: int, prefix: Ids, extra: dict[str, Any]) -> Any:
    """Of a request that goes on as far as the context reaches; nobody reads what vLLM says of it."""
    from vllm.sampling_params import RequestOutputKind

    most = max(1, context + 1 - len(prefix))
    return params({"max_tokens": most, "temperature": 0.0, "output_kind": RequestOutputKind.FINAL_ONLY}, extra)


@contextmanager
def _one_process() -> Iterator[None]:
    """vLLM's model in this very process, where it can be and nobody has said otherwise; it is asked when it starts."""
    name = "VLLM_ENABLE_V1_MULTIPROCESSING"
    given = os.environ.get(name)
    os.environ[name] = "0" if given is None else given
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]


def _completion(completion: Any, prompt: list[dict[int, float] | None] | None) -> Completion:
    ids = list(completion.token_ids)
    logs = completion.logprobs
    if logs is None:
        return Completion(ids, [], [], prompt)
    tops = [
        dict(zip(logs.token_ids[start:end], logs.logprobs[start:end], strict=True))
        for start, end in zip(logs.start_indices, logs.end_indices, strict=True)
    ]
    return Completion(ids, [top.get(token) for token, top in zip(ids, tops, strict=True)], tops, prompt)


def _by_id(row: Any) -> dict[int, float] | None:
    """{id: log p} of one position of a prompt; nothing for the first."""
    return {token: found.logprob for token, found in row.items()} if row else None


class VLLMServer(VLLM):
    """A model behind the completions of a vLLM server.

    Attributes:
        model: what the server calls it.
    """

    def __init__(self, address: str, model: str | None = None, **connection: Any) -> None:
        """Ask what is served, and what can be asked of it.

        Args:
            address: of its API, which ends with /v1.
            model: its name at the server; by default the only one there.
            **connection: of `JsonClient`: api_key, timeout, retries, backoff, connections.

        Raises:
            EngineError: the server is out of reach, or no vLLM.
            InvalidArgument: it serves several models and none was named, or not this one; or this is no such address.
        """
        root, found, version = address.rstrip("/").rpartition("/")
        if version != "v1" or not found:
            raise InvalidArgument(f"The address of a vLLM server ends with /v1; {address!r} does not.")
        client = self._client = JsonClient(root, **connection)
        self.name = f"the vLLM server at {client.address}"
        card = _model_card(client.get("/v1/models"), model, self.name)
        self.model, self.root = str(card["id"]), str(card.get("root") or card["id"])
        longest = card.get("max_model_len")
        # It generates a token after each sequence that it scores.
        self.context = longest - 1 if isinstance(longest, int) else None
        self.probe()

    def tokenized(self, text: str) -> list[int] | None:
        """Ids of a prompt by the server's own tokenizer."""
        return self._client.tokenized({"model": self.model, "prompt": text, "add_special_tokens": True})

    def _ask(self, requests: Sequence[CompletionRequest], rows: bool = False) -> list[list[Completion]]:
        most = max(1, min(_PROMPTS, _SERVED_ROW_NUMBERS // max(1, self.vocab_size))) if rows else _PROMPTS
        groups = _batches(requests, most)
        bodies = [self._body([requests[i] for i in group]) for group in groups]
        found: list[list[Completion]] = [[] for _ in requests]
        for group, answer in zip(groups, self._client.post_all("/v1/completions", bodies), strict=True):
            for i, answers in zip(group, self._parsed(answer, [requests[i] for i in group]), strict=True):
                found[i] = answers
        return found

    def _body(self, requests: Sequence[CompletionRequest]) -> dict[str, Any]:
        """One request for prompts with the same settings."""
        first = requests[0]
        extra = {} if first.forced is None else {"vllm_xargs": {FORCED: list(first.forced)}}
        return {
            "model": self.model,
            "prompt": [list(request.prompt) for request in requests],
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            **NEUTRAL,
            **first.settings,
            **extra,
        }

    def _parsed(self, answer: Any, requests: Sequence[CompletionRequest]) -> list[list[Completion]]:
        """The answers to each of the requests that went together."""
        each = requests[0].settings.get("n", 1)
        try:
            choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
            read = [_parsed_completion(choice) for choice in choices]
            echoed = [choice["prompt_token_ids"] for choice in choices]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EngineError(f"{self.name} gave a completion that cannot be read ({type(error).__name__}: {error}).") from None
        if len(read) != each * len(requests):
            raise EngineError(f"{self.name} gave {len(read)} completions for {len(requests)} prompts, {each} each.")
        if any(echoed[i] != list(requests[i // each].prompt) for i in range(len(read))):
            raise EngineError(f"{self.name} read other tokens than it was sent.")
        return [read[i : i + each] for i in range(0, len(read), each)]


def _parsed_completion(choice: dict[str, Any]) -> Completion:
    """One completion; where log-probabilities were not asked for, there are none."""
    logs = choice.get("logprobs") or {"token_logprobs": [], "top_logprobs": []}
    tops = [{int(key.removeprefix(_TOKEN)): value for key, value in top.items()} for top in logs["top_logprobs"]]
    rows = choice.get("prompt_logprobs")
    if rows is not None:
        rows = [None if row is None else {int(key): value["logprob"] for key, value in row.items()} for row in rows]
    return Completion(list(choice["token_ids"]), list(logs["token_logprobs"]), tops, rows)


def _batches(requests: Sequence[CompletionRequest], most: int) -> list[list[int]]:
    """Numbers of requests that can go together: the same settings, the same tokens to be forced."""
    groups: dict[str, list[int]] = {}
    for i, request in enumerate(requests):
        groups.setdefault(repr((request.settings, request.forced)), []).append(i)
    return [group[at : at + most] for group in groups.values() for at in range(0, len(group), most)]


def _model_card(models: Any, name: str | None, server: str) -> dict[str, Any]:
    """The card of the model that is meant."""
    cards = models.get("data") if isinstance(models, dict) else None
    if not isinstance(cards, list) or not cards or not all(isinstance(card, dict) and "id" in card for card in cards):
        raise EngineError(f"{server} does not list its models as OpenAI's API does. Is it the server you mean?")
    ids = [str(card["id"]) for card in cards]
    if name is None and len(ids) > 1:
        raise InvalidArgument(f"{server} serves {', '.join(ids)}; name one of them: load(..., model={ids[0]!r}).")
    if name is not None and name not in ids:
        raise InvalidArgument(f"{server} does not serve {name!r}; it serves {', '.join(ids)}.")
    return dict(cards[ids.index(name) if name is not None else 0])
