"""A vLLM server, by its completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from locore.errors import EngineError, InvalidArgument
from locore.models.engines.base import FORCED
from locore.models.engines.http import JsonClient
from locore.models.engines.vllm import NEUTRAL, VLLM, Answer, Request

ROW_NUMBERS = 2**18  # log-probabilities in one answer, some 30 bytes each
PROMPTS = 64  # in one request, which the server works on together
TOKEN = "token_id:"


class VLLMServer(VLLM):
    """A model behind the completions of a vLLM server.

    Attributes:
        model: what the server calls it.
        root: where the server has it from: a folder there, or a Hugging Face name.
    """

    def __init__(self, client: JsonClient, model: str | None = None) -> None:
        """Ask what is served, and what can be asked of it.

        Raises:
            EngineError: the server is out of reach, or no vLLM.
            InvalidArgument: it serves several models and none was named, or not this one.
        """
        self._client = client
        self.name = f"the vLLM server at {client.address}"
        card = _chosen(client.get("/v1/models"), model, self.name)
        self.model, self.root = str(card["id"]), str(card.get("root") or card["id"])
        longest = card.get("max_model_len")
        # It generates a token after each sequence that it scores.
        self.context = longest - 1 if isinstance(longest, int) else None
        self.vocab_size = 0
        self.find_out()

    def tokenized(self, text: str) -> list[int] | None:
        """Ids of a prompt by the server's own tokenizer; None if it does not tell."""
        return self._client.tokenized({"model": self.model, "prompt": text, "add_special_tokens": True})

    def _answers(self, requests: Sequence[Request], rows: bool = False) -> list[list[Answer]]:
        most = max(1, min(PROMPTS, ROW_NUMBERS // max(1, self.vocab_size))) if rows else PROMPTS
        groups = _alike(requests, most)
        bodies = [self._body([requests[i] for i in group]) for group in groups]
        found: list[list[Answer]] = [[] for _ in requests]
        for group, answer in zip(groups, self._client.post_all("/v1/completions", bodies), strict=True):
            for i, answers in zip(group, self._parsed(answer, [requests[i] for i in group]), strict=True):
                found[i] = answers
        return found

    def _body(self, requests: Sequence[Request]) -> dict[str, Any]:
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

    def _parsed(self, answer: Any, requests: Sequence[Request]) -> list[list[Answer]]:
        """The answers to each of the requests that went together."""
        each = requests[0].settings.get("n", 1)
        try:
            choices = sorted(answer["choices"], key=lambda choice: int(choice["index"]))
            read = [_answer(choice) for choice in choices]
            echoed = [choice["prompt_token_ids"] for choice in choices]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EngineError(f"{self.name} gave a completion that cannot be read ({type(error).__name__}: {error}).") from None
        if len(read) != each * len(requests):
            raise EngineError(f"{self.name} gave {len(read)} completions for {len(requests)} prompts, {each} each.")
        if any(echoed[i] != list(requests[i // each].prompt) for i in range(len(read))):
            raise EngineError(f"{self.name} read other tokens than it was sent.")
        return [read[i : i + each] for i in range(0, len(read), each)]


def _answer(choice: dict[str, Any]) -> Answer:
    """One completion; where log-probabilities were not asked for, there are none."""
    logs = choice.get("logprobs") or {"token_logprobs": [], "top_logprobs": []}
    tops = [{int(key.removeprefix(TOKEN)): value for key, value in top.items()} for top in logs["top_logprobs"]]
    rows = choice.get("prompt_logprobs")
    prompt = (
        None
        if rows is None
        else [None if row is None else {int(key): value["logprob"] for key, value in row.items()} for row in rows]
    )
    return Answer(list(choice["token_ids"]), list(logs["token_logprobs"]), tops, prompt)


def _alike(requests: Sequence[Request], most: int) -> list[list[int]]:
    """Numbers of requests that can go together: the same settings, the same tokens to be forced."""
    groups: dict[str, list[int]] = {}
    for i, request in enumerate(requests):
        groups.setdefault(repr((request.settings, request.forced)), []).append(i)
    return [group[at : at + most] for group in groups.values() for at in range(0, len(group), most)]


def _chosen(models: Any, name: str | None, server: str) -> dict[str, Any]:
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
