"""An SGLang server, by its native `/generate`. Written from its documentation and source; never run against a real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from locore.kernel.errors import EngineError
from locore.models.engines.http import JsonClient
from locore.models.engines.model import NEUTRAL, Engine, Ids, parsed_log_probs, whole_row

PROMPTS = 64  # in one request
ROW_NUMBERS = 2**18  # log-probabilities in one answer

_SETTINGS = {**NEUTRAL, "top_k": -1, "max_new_tokens": 1}


class SGLangServer(Engine):
    """A model behind an SGLang server. The cache of prefixes serves every score, so nothing need be forced.

    The tokenizer says how large the vocabulary is: the server gives exactly the ids that it is asked for.
    """

    reuses_prefix = True
    verified = False

    def __init__(self, address: str, **connection: Any) -> None:
        """Ask what is served.

        Args:
            address: such as http://127.0.0.1:30000.
            **connection: of `JsonClient`: api_key, timeout, retries, backoff, connections.

        Raises:
            EngineError: the server is out of reach, or no SGLang.
        """
        client = self._client = JsonClient(address.rstrip("/").removesuffix("/v1"), **connection)
        self.name = f"the SGLang server at {client.address}"
        facts = client.get("/get_model_info")
        if not isinstance(facts, dict) or not isinstance(facts.get("model_path"), str):
            raise EngineError(f"{self.name} does not name its model. Is it the server you mean?")
        self.root: str = facts["model_path"]
        longest = client.get("/get_server_info").get("context_length")
        self.context = longest - 1 if isinstance(longest, int) else None

    def next_log_probs(self, prefixes: Sequence[Ids]) -> Tensor:
        """Float[prefix, vocab]: every id is asked for by name."""
        every = list(range(self.vocab_size))
        most = max(1, ROW_NUMBERS // self.vocab_size)
        tables = self._next(prefixes, [every] * len(prefixes), most)
        return torch.stack([whole_row(row, self.vocab_size, self.name) for row in tables])

    def chosen_log_probs(self, prefixes: Sequence[Ids], chosen: Sequence[Ids]) -> Tensor:
        """Float[prefix, k]: only the chosen ids travel."""
        tables = self._next(prefixes, [sorted(set(ids)) for ids in chosen], PROMPTS)
        rows = [parsed_log_probs((row.get(token) for token in ids), self.name) for row, ids in zip(tables, chosen, strict=True)]
        return torch.tensor(rows)

    def tail_scores(self, prefixes: Sequence[Ids], tails: Sequence[Ids]) -> list[list[float]]:
        """Log p of each token of each tail; what the cache holds of the prefix, but its last token, is not read again."""
        return self._scores(prefixes, tails, [len(prefix) - 1 for prefix in prefixes])

    def plain_scores(self, prefixes: Sequence[Ids], tails: Sequence[Ids]) -> list[list[float]]:
        """The same with scores from the first token on, which the cache cannot give."""
        return self._scores(prefixes, tails, [0] * len(prefixes))

    def tokenized(self, text: str) -> list[int] | None:
        """Ids of a prompt by the server's own tokenizer."""
        return self._client.tokenized({"prompt": text, "add_special_tokens": True})

    def _next(self, prefixes: Sequence[Ids], chosen: Sequence[Ids], most: int) -> list[dict[int, Any]]:
        """{id: log p} of the chosen tokens after each prefix."""
        parts = [slice(at, at + most) for at in range(0, len(prefixes), most)]
        bodies = [{"input_ids": list(map(list, prefixes[p])), "token_ids_logprob": list(map(list, chosen[p]))} for p in parts]
        tables = []
        for facts in self._generate(bodies, [len(prefixes[p]) for p in parts]):
            rows = self._listed(facts.get("output_token_ids_logprobs"), 1)[0]
            tables.append({token: value for value, token in self._pairs(rows)})
        return tables

    def _scores(self, prefixes: Sequence[Ids], tails: Sequence[Ids], starts: Sequence[int]) -> list[list[float]]:
        whole = [[*prefix, *tail] for prefix, tail in zip(prefixes, tails, strict=True)]
        parts = [slice(at, at + PROMPTS) for at in range(0, len(whole), PROMPTS)]
        bodies = [{"input_ids": whole[p], "logprob_start_len": list(starts[p])} for p in parts]
        scores = []
        for i, facts in enumerate(self._generate(bodies, [len(whole[p]) for p in parts])):
            pairs = self._pairs(self._listed(facts.get("input_token_logprobs"), len(whole[i]) - starts[i]))[-len(tails[i]) :]
            if [token for _, token in pairs] != list(tails[i]):
                raise EngineError(f"{self.name} scored other tokens than it was sent.")
            scores.append(parsed_log_probs((value for value, _ in pairs), self.name))
        return scores

    def _generate(self, bodies: Sequence[dict[str, Any]], sizes: Sequence[int]) -> list[dict[str, Any]]:
        """The facts about each prompt of each request."""
        common = {"sampling_params": _SETTINGS, "return_logprob": True}
        answers = self._client.post_all("/generate", [{**common, **body} for body in bodies])
        facts = []
        for answer, size in zip(answers, sizes, strict=True):
            if not isinstance(answer, list) or len(answer) != size:
                raise EngineError(f"{self.name} was sent {size} prompts and did not give {size} answers.")
            facts += [entry.get("meta_info") if isinstance(entry, dict) else None for entry in answer]
        given = [fact for fact in facts if isinstance(fact, dict)]
        if len(given) != len(facts):
            raise EngineError(f"{self.name} gave an answer without meta_info. Is it the server you mean?")
        return given

    def _listed(self, rows: Any, length: int) -> list[Any]:
        if not isinstance(rows, list) or len(rows) != length:
            raise EngineError(
                f"{self.name} gave {len(rows) if isinstance(rows, list) else 'no'} log-probabilities, not {length}."
            )
        return rows

    def _pairs(self, rows: Any) -> list[tuple[Any, Any]]:
        """(log p, id) of each; SGLang writes [log p, id, text or null]."""
        if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) >= 2 for row in rows):
            raise EngineError(f"{self.name} gave log-probabilities in a form that cannot be read.")
        return [(row[0], row[1]) for row in rows]
