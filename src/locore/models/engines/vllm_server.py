"""A vLLM server, asked over HTTP by its completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from locore.kernel.errors import EngineError, InvalidArgument
from locore.models.engines.http import JsonClient
from locore.models.engines.model import FORCED, NEUTRAL
from locore.models.engines.vllm import VLLM, Completion, CompletionRequest

_ROW_NUMBERS = 2**18  # log-probabilities in one answer, some 30 bytes each
_PROMPTS = 64  # in one request, which the server works on together
_TOKEN = "token_id:"


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
        root, slash, version = address.rstrip("/").rpartition("/")
        if version != "v1" or not slash:
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
        most = max(1, min(_PROMPTS, _ROW_NUMBERS // max(1, self.vocab_size))) if rows else _PROMPTS
        groups = _batches(requests, most)
        bodies = [self._body([requests[i] for i in group]) for group in groups]
        completions: list[list[Completion]] = [[] for _ in requests]
        for group, answer in zip(groups, self._client.post_all("/v1/completions", bodies), strict=True):
            for i, answers in zip(group, self._parsed(answer, [requests[i] for i in group]), strict=True):
                completions[i] = answers
        return completions

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
