"""vLLM in this process: whole distributions where they lie, and requests that go on from token to token."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from locore.kernel.errors import EngineError, MissingExtra
from locore.models.engines.model import FORCED, NEUTRAL, ROUNDING, Ids, Refused
from locore.models.engines.vllm import VLLM, Completion, CompletionRequest

if TYPE_CHECKING:
    from locore.models.engines.live import Live  # which needs vLLM

PROCESSOR = "locore.models.engines.forcing:ForcedTokens"
LIVE_ROWS = "locore.models.engines.live:LiveRows"
_ROW_NUMBERS = 2**22  # log-probabilities that are held at once, by vLLM as Python objects


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
        most = max(1, _ROW_NUMBERS // max(1, self.vocab_size)) if rows else len(requests)  # 0 until that is known
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
                outputs = list(self.llm.generate([{"prompt_token_ids": list(ids)} for ids in prompts], params, use_tqdm=False))
        except ValueError as error:  # what a server answers with 400
            raise Refused(f"{self.name} refused a request: {error}", 400, str(error)) from error
        if [list(output.prompt_token_ids) for output in outputs] != [list(ids) for ids in prompts]:
            raise EngineError(
                f"{self.name} gave answers to other requests, perhaps to some that were interrupted; load it anew."
            )
        return outputs


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
    return {token: entry.logprob for token, entry in row.items()} if row else None
