"""vLLM inside this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from locore.errors import EngineError, MissingExtra
from locore.models.engines.base import FORCED, Refused
from locore.models.engines.vllm import NEUTRAL, VLLM, Answer, Request

PROCESSOR = "locore.models.engines.forcing:ForcedTokens"
ROW_NUMBERS = 2**22  # log-probabilities that vLLM holds as Python objects at once


class VLLMLocal(VLLM):
    """A model in a `vllm.LLM`.

    Attributes:
        llm: the `vllm.LLM`.
    """

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
        self.name = f"vLLM with {folder}"
        usual = {"max_logprobs": -1, "enable_prefix_caching": True, "logits_processors": [PROCESSOR]}
        try:
            self.llm = vllm.LLM(model=folder, **{**usual, **options})
        except Exception as error:  # an engine in a process of its own reports in any way that it did not start
            raise EngineError(f"{self.name} did not start: {error}") from error
        self._sampling = vllm.SamplingParams
        self.context = self.llm.llm_engine.model_config.max_model_len - 1
        self.vocab_size = 0
        self.find_out()

    def _answers(self, requests: Sequence[Request], rows: bool = False) -> list[list[Answer]]:
        most = max(1, ROW_NUMBERS // max(1, self.vocab_size)) if rows else len(requests)
        parts = [requests[at : at + most] for at in range(0, len(requests), most)]
        return [answers for part in parts for answers in self._generate(part)]

    def _generate(self, requests: Sequence[Request]) -> Iterator[list[Answer]]:
        prompts = [{"prompt_token_ids": list(request.prompt)} for request in requests]
        try:
            # In one process with us it draws from torch's global generator.
            with torch.random.fork_rng(devices=[]):
                outputs = self.llm.generate(prompts, [self._params(request) for request in requests], use_tqdm=False)
        except ValueError as error:  # what a server answers with 400
            raise Refused(f"{self.name} refused a request: {error}", 400, str(error)) from error
        for output in outputs:
            prompt = None if output.prompt_logprobs is None else [_values(row) for row in output.prompt_logprobs]
            yield [_answer(completion, prompt) for completion in output.outputs]

    def _params(self, request: Request) -> Any:
        extra = None if request.forced is None else {FORCED: list(request.forced)}
        return self._sampling(**NEUTRAL, **request.settings, extra_args=extra, detokenize=False, flat_logprobs=True)


def _answer(completion: Any, prompt: list[dict[int, float] | None] | None) -> Answer:
    ids = list(completion.token_ids)
    logs = completion.logprobs
    if logs is None:
        return Answer(ids, [], [], prompt)
    tops = [
        dict(zip(logs.token_ids[start:end], logs.logprobs[start:end], strict=True))
        for start, end in zip(logs.start_indices, logs.end_indices, strict=True)
    ]
    return Answer(ids, [top.get(token) for token, top in zip(ids, tops, strict=True)], tops, prompt)


def _values(row: Any) -> dict[int, float] | None:
    """{id: log p} of one position of a prompt; nothing for the first."""
    return {token: found.logprob for token, found in row.items()} if row else None
