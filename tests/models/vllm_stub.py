"""The parts of vLLM that its local engine meets: requests, a scheduler, and both interfaces for processors of logits.

It is a package to whoever imports it. Its model is a function from ids to logits. Rows come in any order, as vLLM's do; a
prompt is read in parts where that is switched on, and only as many requests as fit take part in a step.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

SLOTS = 64
Row = Callable[[tuple[int, ...]], torch.Tensor]


class First(ABC):
    """Of the first model runner."""

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        return None

    @abstractmethod
    def __init__(self, vllm_config, device, is_pin_memory): ...

    @abstractmethod
    def apply(self, logits): ...

    @abstractmethod
    def is_argmax_invariant(self): ...

    @abstractmethod
    def update_state(self, batch_update): ...


class Second(ABC):
    """Of the second."""

    def __init__(self, vllm_config, req_states):
        self.req_states = req_states

    @abstractmethod
    def apply(self, logits, ctx): ...


def process_dict_updates(entries, update, new) -> None:
    """Requests that come, go and move."""
    for index, params, prompt, generated in update.added:
        state = new(params, prompt, generated)
        entries.pop(index, None) if state is None else entries.__setitem__(index, state)
    for index in update.removed:
        entries.pop(index, None)
    for before, after, _ in update.moved:
        if before in entries:
            entries[after] = entries.pop(before)


@dataclass
class Request:
    name: str
    prompt: list[int]
    params: Any
    generated: list[int] = field(default_factory=list)
    scores: list[torch.Tensor] = field(default_factory=list)
    read: int = 0  # tokens of it, by the second runner in parts
    slot: int = -1

    number: int = 0  # of those with the same prompt

    @property
    def ids(self) -> list[int]:
        return [*self.prompt, *self.generated]

    def drawn(self, logits: torch.Tensor) -> int:
        if not self.params.temperature:
            return int(logits.argmax())
        seed = (self.params.seed or 0) + self.number + 1_000 * len(self.generated)
        return int(torch.multinomial(logits.softmax(-1), 1, generator=torch.Generator().manual_seed(seed)))

    @property
    def is_over(self) -> bool:
        return len(self.generated) == self.params.max_tokens or self.generated[-1] in self.params.stop_token_ids


class Engine:
    """A scheduler that steps, as `vllm.v1.engine.llm_engine.LLMEngine` does.

    Attributes:
        steps, begun: how often it stepped, and how many requests it was given.
        most: requests that take part in a step.
        part: tokens of a prompt that a step reads, of the second runner; None for all.
        before: called at the start of each step.
        sets_aside: does the next step read all requests again, as after a preemption, what was generated with the prompt?
    """

    def __init__(self, row: Row, runner: int, processors: list[type], context: int) -> None:
        self.row, self.runner, self.most, self.part = row, runner, SLOTS, None
        self.steps = self.begun = 0
        self.before, self.sets_aside = lambda: None, False
        self.running: list[Request] = []
        self.placed: list[Request] = []  # as the first runner's processors know them
        self.random = Random(0)
        state = SimpleNamespace(
            prefill_len=SimpleNamespace(np=[0] * SLOTS * 4),
            prompt_len=SimpleNamespace(np=[0] * SLOTS * 4),
            all_token_ids=SimpleNamespace(gpu=torch.zeros(SLOTS * 4, context + 2, dtype=torch.int32)),
        )
        self.state = state
        rest = (torch.device("cpu"), False) if runner == 1 else (state,)
        self.processors = [kind(SimpleNamespace(speculative_config=None), *rest) for kind in processors]
        self.model_config = SimpleNamespace(max_model_len=context)
        self.vllm_config = SimpleNamespace(
            scheduler_config=SimpleNamespace(enable_chunked_prefill=False, async_scheduling=False)
        )

    def add_request(self, name: str, prompt: dict[str, list[int]], params: Any, number: int = 0) -> None:
        assert all(request.name != name for request in self.running)
        request = Request(name, list(prompt["prompt_token_ids"]), params, number=number)
        self.begun += 1
        taken = {other.slot for other in self.running}
        request.slot = next(slot for slot in range(SLOTS * 4) if slot not in taken)
        self.running.append(request)
        if self.runner == 2:
            self._fill(request)

    def _fill(self, request: Request) -> None:
        """A slot is taken, by a new request or one that was set aside."""
        self.state.prompt_len.np[request.slot] = len(request.prompt)
        self.state.prefill_len.np[request.slot] = len(request.ids)
        self.state.all_token_ids.gpu[request.slot, : len(request.ids)] = torch.tensor(request.ids, dtype=torch.int32)
        request.read = 0
        for processor in self.processors:
            processor.add_request(request.slot, request.params)

    def abort_request(self, names: list[str]) -> None:
        self.running = [request for request in self.running if request.name not in names]

    def has_unfinished_requests(self) -> bool:
        return bool(self.running)

    def step(self) -> list[Request]:
        """One token more for some requests; those that have all they asked for."""
        self.before()
        self.steps += 1
        if self.sets_aside and self.runner == 2:
            for request in self.running:
                self._fill(request)
        self.sets_aside = False
        rows = self.running[: self.most]
        self.random.shuffle(rows)
        for request in rows:
            request.read = len(request.ids) if self.part is None else min(len(request.ids), request.read + self.part)
        logits = torch.stack([self.row(tuple(request.ids[: request.read])) for request in rows])
        plain = logits.clone()
        shifted = logits + torch.arange(len(rows))[:, None]  # logits are known up to a constant
        changed = self._processed(shifted, rows)
        finished = []
        for request, row, own in zip(rows, changed, plain, strict=True):
            if request.read < len(request.ids):
                continue
            token = request.drawn(row)
            request.generated.append(token)
            request.scores.append(own.log_softmax(-1))
            self.state.all_token_ids.gpu[request.slot, len(request.ids) - 1] = token
            if request.is_over:
                finished.append(request)
        self.running = [request for request in self.running if request not in finished]
        return finished

    def _processed(self, logits: torch.Tensor, rows: list[Request]) -> torch.Tensor:
        if self.runner == 1:
            gone = range(len(rows), len(self.placed))
            update = SimpleNamespace(
                added=[(row, one.params, one.prompt, one.generated) for row, one in enumerate(rows)], removed=gone, moved=[]
            )
            self.placed = rows
            for processor in self.processors:
                processor.update_state(update)
                logits = processor.apply(logits)
            return logits
        context = SimpleNamespace(
            expanded_idx_mapping=torch.tensor([request.slot for request in rows]),
            idx_mapping_np=torch.tensor([request.slot for request in rows]).numpy(),
            input_ids=torch.tensor([request.ids[request.read - 1] for request in rows]),
            pos=torch.tensor([request.read - 1 for request in rows]),
        )
        for processor in self.processors:
            logits = processor.apply(logits, context)
        return logits


@dataclass
class SamplingParams:
    max_tokens: int = 16
    extra_args: dict[str, Any] | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    temperature: float = 1.0
    n: int = 1
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    output_kind: Any = None


@contextmanager
def vllm(row: Row, runner: int, context: int = 64) -> Iterator[None]:
    """`import vllm` gives this one, with the model runner of that number, around these logits."""

    class LLM:
        def __init__(self, model: str, logits_processors: list[str], **_: Any) -> None:
            kinds = [
                getattr(sys.modules.get(m) or __import__(m, fromlist=[c]), c)
                for m, c in (p.split(":") for p in logits_processors)
            ]
            assert all(issubclass(kind, First if runner == 1 else Second) for kind in kinds)
            self.llm_engine = Engine(row, runner, kinds, context)

        def generate(self, prompts: list[dict[str, list[int]]], params: list[Any], use_tqdm: bool) -> list[Any]:
            assert not self.llm_engine.running
            for at, (prompt, own) in enumerate(zip(prompts, params, strict=True)):
                for number in range(own.n):
                    self.llm_engine.add_request(f"{at} {number}", prompt, own, number)
            requests = list(self.llm_engine.running)
            while self.llm_engine.running:
                self.llm_engine.step()
            outputs = iter([_output(request, row) for request in requests])
            return [_joined([next(outputs) for _ in range(own.n)]) for own in params]

    modules = {name: ModuleType(name) for name in _NAMES}
    modules["vllm"].__dict__.update(
        LLM=LLM,
        SamplingParams=lambda **given: SamplingParams(
            **{k: v for k, v in given.items() if k in SamplingParams.__annotations__}
        ),
        __version__="0",
    )
    modules["vllm.sampling_params"].RequestOutputKind = SimpleNamespace(FINAL_ONLY=2)
    modules["vllm.v1.sample.logits_processor"].LogitsProcessor = First
    modules["vllm.v1.sample.logits_processor.builtin"].process_dict_updates = process_dict_updates
    modules["vllm.v1.worker.gpu.sample.logits_processor"].LogitsProcessor = Second
    ours = [f"locore.models.engines.{name}" for name in ("processors", "forcing", "live")]
    before = {name: sys.modules.pop(name, None) for name in [*modules, *ours]}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


_NAMES = [
    *(
        "vllm",
        "vllm.sampling_params",
        "vllm.v1",
        "vllm.v1.sample",
        "vllm.v1.sample.logits_processor",
        "vllm.v1.sample.logits_processor.builtin",
    ),
    *("vllm.v1.worker", "vllm.v1.worker.gpu", "vllm.v1.worker.gpu.sample", "vllm.v1.worker.gpu.sample.logits_processor"),
]


def _output(request: Request, row: Row) -> Any:
    prompt = None
    if request.params.prompt_logprobs is not None:
        tables = [row(tuple(request.prompt[:at])).log_softmax(-1) for at in range(1, len(request.prompt))]
        scores = [float(table[token]) for token, table in zip(request.prompt[1:], tables, strict=True)]
        prompt = [None, *({token: SimpleNamespace(logprob=at)} for token, at in zip(request.prompt[1:], scores, strict=True))]
    logs = None
    if request.params.logprobs is not None:
        every = request.params.logprobs == -1
        shown = [range(len(request.scores[0])) if every else [token] for token in request.generated]
        ends = torch.tensor([0, *map(len, shown)]).cumsum(0).tolist()
        logs = SimpleNamespace(
            token_ids=[token for tokens in shown for token in tokens],
            logprobs=[float(table[token]) for table, tokens in zip(request.scores, shown, strict=True) for token in tokens],
            start_indices=ends[:-1],
            end_indices=ends[1:],
        )
    completion = SimpleNamespace(token_ids=list(request.generated), logprobs=logs)
    return SimpleNamespace(prompt_token_ids=request.prompt, prompt_logprobs=prompt, outputs=[completion])


def _joined(outputs: list[Any]) -> Any:
    outputs[0].outputs = [output.outputs[0] for output in outputs]
    return outputs[0]
