"""A constrained sample on an accelerator: how much of the time is the model, and how near it comes to the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import locore
from locore.local import Forward, TopK
from locore.models import HuggingFaceModel
from locore.samplers import Auto, LocallyConstrainedResampling, Sampler, SequentialMonteCarlo, WithoutReplacement
from locore_lab.shared import TokenMeter
from locore_lab.speed.plan import ACCELERATOR_PROMPT, Case, Models, Row, SpeedPlan, Table, millions, on_device, parameters
from locore_lab.speed.sampling import BANNED, never, transformers_generate

REPEATS = 8  # of a pass; the median counts


def shown_millions(row: Row) -> str:
    return millions(row["parameters"])


def idle(row: Row) -> str:
    return "–" if row["busy"] is None else f"{max(0.0, 1 - row['busy'] / row['seconds']):.0%}"


ACCELERATOR = Table(
    """\
## On an accelerator

Wall seconds on the device, weights in bfloat16 (random: speed does not depend on them), log-softmax in float32, {n} new
tokens, 1 % of the vocabulary forbidden. The second run counts; compiling the constraint is not in it, since it is kept.

- s a sample: seconds of `generate` / particles.
- tokens/s: that the module reads, the prompt included.
- of transformers: these over those of `generate(do_sample=True)` of transformers without a constraint, for as many rows and
  tokens behind the same prompt (which it reads for each row), by the same module in the same run.
- of bandwidth: bytes of the weights × passes, in a second of the model, over what a copy in the device's memory reaches in the
  same run. A pass reads all weights once, however few rows it has.
- of ceiling: 2 × parameters × tokens that the module reads, in a second of the model, over what a product of square matrices
  reaches in the same run.
- ms a pass: seconds of the model over its passes.
- outside: share of the time that is not spent in the model (goal: under 10 %).
- idle: share of the time in which no kernel runs on the device: 1 less the seconds of its kernels, by torch's profiler in a
  third run, over the seconds of the second.""",
    (
        "device | model | parameters | sampler | particles | s a sample | LM tokens | passes | ms a pass | tokens/s "
        "| of transformers | of bandwidth | of ceiling | outside | idle",
        "{device} | {model} | {millions} | {sampler} | {particles} | {each} | {tokens} | {passes} | {ms a pass:.1f} "
        "| {rate:.0f} | {of transformers:.2f} | {of bandwidth:.0%} | {of ceiling:.0%} | {outside:.0%} | {idle}",
    ),
    {
        "millions": shown_millions,
        "each": lambda row: row["seconds"] / row["particles"],
        "rate": lambda row: row["tokens"] / row["seconds"],
        "of transformers": lambda row: (
            row["tokens"] / row["seconds"] * row["transformers seconds"] / row["transformers tokens"]
        ),
        "of bandwidth": lambda row: row["bytes"] / row["model seconds"] / row["bandwidth"],
        "of ceiling": lambda row: row["flops"] / row["model seconds"] / row["ceiling"],
        "outside": lambda row: 1 - row["model seconds"] / row["seconds"],
        "ms a pass": lambda row: 1e3 * row["model seconds"] / row["passes"],
        "idle": idle,
    },
)
PASSES = Table(
    """\
### A pass by its rows

One token of each row behind {n} tokens that it has read, by the bare module: how many rows a pass takes for nothing.""",
    (
        "device | model | parameters | rows | ms a pass | of one row | idle",
        "{device} | {model} | {millions} | {rows} | {ms:.2f} | {of one row:.2f} | {idle}",
    ),
    {
        "millions": shown_millions,
        "idle": idle,
        "ms": lambda row: 1e3 * row["seconds"],
        "of one row": lambda row: row["seconds"] / row["one row"],
    },
)


def accelerator_cases(plan: SpeedPlan) -> Iterator[Case]:
    """The widths of a pass, then each sampler with each number of particles, if there is a device."""
    models = on_device(plan)
    for name in plan.accelerator_shapes if plan.device else ():
        yield ("pass", name), partial(_passes, plan, models, name)
        for label, sampler in _samplers(plan).items():
            for particles in plan.accelerator_particles:
                yield ("accelerator", name, label, particles), partial(_measure, plan, models, name, label, sampler, particles)


def _samplers(plan: SpeedPlan) -> dict[str, Sampler]:
    found: dict[str, Sampler] = {
        "smc": SequentialMonteCarlo(),
        "auto": Auto(),
        "swor": WithoutReplacement(),
        "lcr, forward": LocallyConstrainedResampling(kernel=Forward()),
    }
    return found | {f"lcr, k = {k}": LocallyConstrainedResampling(kernel=TopK(k=k)) for k in plan.accelerator_ks}


def _passes(plan: SpeedPlan, models: Models, name: str) -> list[Row]:
    """A step of the bare module, by how many rows it has."""
    model = models[name]
    assert plan.device is not None
    module, rows = model.causal.module, list[Row]()
    for width in plan.accelerator_rows:
        read = torch.zeros(width, plan.n, dtype=torch.long, device=plan.device)
        cache = module(read, use_cache=True, logits_to_keep=1).past_key_values

        def step(ids: torch.Tensor = read[:, :1], cache: Any = cache) -> None:
            float(module(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, 0, 0])  # waits for it
            cache.crop(-1)

        step()
        seconds = sorted(seconds_of(step) for _ in range(REPEATS))[REPEATS // 2]
        first = rows[0]["seconds"] if rows else seconds
        row: Row = {"part": "pass", "device": device_name(plan.device), "model": name, "parameters": parameters(model)}
        rows.append(row | {"rows": width, "seconds": seconds, "one row": first, "busy": busy_seconds(step, plan.device)})
    return rows


def _measure(plan: SpeedPlan, models: Models, name: str, label: str, sampler: Sampler, particles: int) -> list[Row]:
    model = models[name]
    assert plan.device is not None
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(model.vocab_size, (ACCELERATOR_PROMPT,), generator=generator).tolist()
    banned = torch.randperm(model.vocab_size, generator=generator)[: int(BANNED * model.vocab_size)].tolist()

    def work(seed: int) -> locore.Particles:
        return locore.generate(
            model, prompt, never(banned, plan.n), plan.n, num_particles=particles, sampler=sampler, seed=seed
        )

    def plain() -> None:
        transformers_generate(model, torch.tensor(prompt), particles, plan.n).cpu()  # waits for the tokens

    work(0)
    particles_found, seconds, meter = timed(model, lambda: work(1))
    # A model's distributions are looked at before its clock stops, so nothing is still under way.
    inside, weights = particles_found.info["model_seconds"], parameters(model) * model.causal.module.dtype.itemsize
    plain()
    _, plain_seconds, plain_meter = timed(model, plain)
    row: Row = {"part": "accelerator", "model": name, "parameters": parameters(model), "sampler": label, "particles": particles}
    row |= {"device": device_name(plan.device), "seconds": seconds, "model seconds": inside, "tokens": meter.tokens}
    row |= {"passes": meter.passes, "transformers tokens": plain_meter.tokens, "transformers seconds": plain_seconds}
    row |= {"ceiling": ceiling(plan.device), "flops": 2 * parameters(model) * meter.tokens}
    row |= {"busy": busy_seconds(lambda: work(1), plan.device)}
    return [row | {"bandwidth": bandwidth(plan.device), "bytes": weights * meter.passes}]


def seconds_of(work: Callable[[], Any]) -> float:
    """Wall seconds of what waits for the device."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def busy_seconds(work: Callable[[], Any], device: str) -> float | None:
    """Seconds of the kernels that some work runs on a device; None where torch's profiler sees none."""
    if not device.startswith("cuda"):
        return None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize(device)
    # One stream: kernels follow each other, so their sum is the time in which one ran.
    return float(sum(event.self_device_time_total for event in profile.key_averages())) / 1e6


def timed(model: HuggingFaceModel, work: Callable[[], Any]) -> tuple[Any, float, TokenMeter]:
    """What some work, which waits for the device, gives; its wall seconds; and what the module read."""
    meter = TokenMeter(model.causal.module)
    start = time.perf_counter()
    answer = work()
    seconds = time.perf_counter() - start
    meter.close()
    return answer, seconds, meter


def device_name(device: str) -> str:
    """As its maker calls it."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def ceiling(device: str, size: int = 8192) -> float:
    """FLOP a second of a product of square bfloat16 matrices, the best of several."""
    size = size if device.startswith("cuda") else 256
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        float((a @ b)[0, 0])  # waits for the product
        best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best


def bandwidth(device: str, numbers: int = 2**29) -> float:
    """Bytes a second that a copy within the device's memory reads and writes, the best of several."""
    numbers = numbers if device.startswith("cuda") else 2**20
    here, there = torch.zeros(2, numbers, device=device, dtype=torch.bfloat16)
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        there.copy_(here)
        float(there[0])  # waits for the copy
        best = min(best, time.perf_counter() - start)
    return 2.0 * int(here.nbytes) / best
