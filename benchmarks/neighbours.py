"""What the prefix cache saves in Algorithm 1: all sequences at Hamming distance 1 from a draft.

The paper evaluates n·k full sequences. `neighbours` reads the draft once and then only the tail
of each neighbour. Both run here on a random Llama, one thread, with equal results; the times are
CPU seconds, so that a busy machine does not change them much. Model tokens are counted at the
module.

    python benchmarks/neighbours.py [--json benchmarks/results/neighbours.json]
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from torch import Tensor

from locore.models import HuggingFaceModel
from locore.models.loading import quiet
from locore.tokenizer import Tokenizer

SIZE = {
    "vocab_size": 8192,
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


class Meter:
    """Counts the tokens that a module reads."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.tokens = 0
        module.register_forward_pre_hook(self._count)

    def _count(self, _: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.tokens += inputs[0].numel()

    def best_of(self, repeats: int, work: Callable[[], Tensor]) -> tuple[Tensor, float, int]:
        """The result, the least CPU seconds and the tokens of one run."""
        seconds = []
        for _ in range(repeats):
            before, start = self.tokens, time.process_time()
            result = work()
            seconds.append(time.process_time() - start)
            tokens = self.tokens - before
        return result, min(seconds), tokens


def random_llama(prompt: Tensor) -> HuggingFaceModel:
    with quiet():
        module = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZE))
    model = HuggingFaceModel.from_module(module, Tokenizer.integers(SIZE["vocab_size"]))
    return model.prompted(prompt.tolist())


@torch.no_grad()
def full_sequences(model: HuggingFaceModel, tokens: Tensor, candidates: Tensor, batch: int) -> Tensor:
    """f64[n, k]: Algorithm 1 as printed, each of the n·k sequences read whole, in batches."""
    n, k = candidates.shape
    sequences = tokens.repeat(n, k, 1)
    for i in range(n):
        sequences[i, :, i] = candidates[i]
    prompt = torch.tensor(model.prompt_ids)
    scores = []
    for part in sequences.flatten(0, 1).split(batch):
        read = torch.cat([prompt.expand(len(part), -1), part[:, :-1]], 1)
        logits = model.causal.module(read, use_cache=False, logits_to_keep=n).logits
        chosen = logits.gather(2, part[..., None])[..., 0] - logits.logsumexp(2)
        scores.append(chosen.double().sum(1))
    return torch.cat(scores).view(n, k)


def measure(prompt_length: int, n: int, k: int, batches: list[int], repeats: int) -> dict:
    torch.manual_seed(0)
    model = random_llama(torch.randint(0, SIZE["vocab_size"], (prompt_length,)))
    tokens = model.sample(1, n, seed=0).tokens[0]
    candidates = model.log_probs(tokens[None])[0].topk(k).indices
    meter = Meter(model.causal.module)

    exact, cached_seconds, cached_tokens = meter.best_of(repeats, lambda: model.neighbours(tokens, candidates))
    runs = {}
    for batch in batches:
        plain, seconds, full_tokens = meter.best_of(
            repeats, lambda batch=batch: full_sequences(model, tokens, candidates, batch)
        )
        runs[batch] = seconds
    best = min(runs, key=runs.get)
    return {
        "parameters": sum(p.numel() for p in model.causal.module.parameters()),
        "prompt": prompt_length,
        "n": n,
        "k": k,
        "full_cpu_seconds": {str(batch): seconds for batch, seconds in runs.items()},
        "full_batch": best,
        "full_tokens": full_tokens,
        "neighbours_cpu_seconds": cached_seconds,
        "neighbours_tokens": cached_tokens,
        "bound": k * n * (n - 1) // 2 + n,
        "speedup": runs[best] / cached_seconds,
        "largest_difference_nats": float((exact - plain).abs().max()),
    }


def machine() -> dict:
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": names[0] if names else platform.processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt")
    parser.add_argument("-n", type=int, default=20, help="tokens of the draft")
    parser.add_argument("-k", type=int, default=32, help="candidates at each position")
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32], help="full sequences")
    parser.add_argument("--repeats", type=int, default=3, help="the fastest counts")
    parser.add_argument("--json", type=Path, help="also write the results here")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    result = measure(arguments.prompt, arguments.n, arguments.k, arguments.batches, arguments.repeats)
    print(f"{'':24}{'CPU seconds':>12}{'model tokens':>14}")
    for batch, seconds in result["full_cpu_seconds"].items():
        print(f"{f'full, {batch} a batch':24}{seconds:12.2f}{result['full_tokens']:14d}")
    print(
        f"{'neighbours':24}{result['neighbours_cpu_seconds']:12.2f}"
        f"{result['neighbours_tokens']:14d}   (bound {result['bound']})"
    )
    print(f"speed-up {result['speedup']:.1f}, largest difference {result['largest_difference_nats']:.1e} nats")
    if arguments.json:
        record = {"machine": machine(), **result}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
