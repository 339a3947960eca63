"""The time of a pass of a model by its rows, beside what the arithmetic and the weights alone take in the same run.

All take turns in one process, so that a busy machine is busy for all. "products" is one product of `ROWS` rows with a layer of
576 × 1,536, which fits into a cache, scaled to the operations of the pass; "weights" is one product of a single row with every
linear layer, which reads all of them. "head" is the head by the library's own product: what `locore.models.head` saves.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import torch
from torch import Tensor

import locore
from locore.models import HuggingFaceModel, LanguageModel
from locore_lab.harness import Case, Row, measurement
from locore_lab.shared import timed
from locore_lab.speed.plan import Shape

WIDTHS = (1, 2, 8, 24, 50, 96)
ROWS, INNER, OUTER = 96, 576, 1_536
WARM, STEPS, TURNS = 3, 3, 5
LARGE = Shape(262_144, hidden=640, inner=2_048, layers=18, heads=4, shared_heads=1)  # as many tokens as Gemma has
POSITIONS = 64


def weights_of(model: HuggingFaceModel) -> list[Tensor]:
    """Of its linear layers."""
    return [part.weight for part in model.causal.module.modules() if isinstance(part, torch.nn.Linear)]


def pass_of(model: LanguageModel, rows: int) -> Callable[[], object]:
    """Reads a token after each of so many rows, always after the same."""
    tokens = torch.randint(2, min(40_000, model.vocab_size), (WARM + 1, rows), generator=torch.Generator().manual_seed(rows))
    cursor = model.begin(1).advance(tokens[0], torch.zeros(rows, dtype=torch.long))
    for step in tokens[1:-1]:
        cursor = cursor.advance(step)
    return lambda: cursor.advance(tokens[-1]).log_probs


def row_of(model: HuggingFaceModel, prompted: LanguageModel, rows: int) -> Row:
    """Milliseconds, the least of several."""
    weights, read = weights_of(model), pass_of(prompted, rows)
    operations = 2 * rows * sum(weight.numel() for weight in weights)
    square, layer = torch.randn(ROWS, INNER), torch.randn(OUTER, INNER)
    narrow = [torch.randn(1, weight.shape[1]) for weight in weights]
    hidden = torch.randn(rows, weights[-1].shape[1])
    product = model.causal.head if model.causal.head is not None else torch.nn.Identity()
    work: dict[str, Callable[[], object]] = {
        "pass": read,
        "products": lambda: [square @ layer.T for _ in range(10)],
        "weights": lambda: [row @ weight.T for row, weight in zip(narrow, weights, strict=True)],
        "head": lambda: hidden @ weights[-1].T,
        "own_head": lambda: product(hidden),
    }
    found: dict[str, list[float]] = {name: [] for name in work}
    with torch.inference_mode():
        for _ in range(TURNS):
            for name, call in work.items():
                found[name].append(min(timed(call)[1] for _ in range(STEPS)))
    least = {f"{name}_ms": 1e3 * min(seconds) for name, seconds in found.items()}
    least["products_ms"] *= operations / (10 * 2 * ROWS * INNER * OUTER)
    floor = max(least["products_ms"], least["weights_ms"])
    return {**least, "of_floor": least["pass_ms"] / floor, "row_ms": least["pass_ms"] / rows}


@measurement(
    "model | rows | ms a pass | ms a row | its products | its weights | times the larger | head | by the library",
    "{model} | {rows} | {pass_ms:.0f} | {row_ms:.1f} | {products_ms:.0f} | {weights_ms:.0f} | {of_floor:.2f} | "
    "{own_head_ms:.0f} | {head_ms:.0f}",
    quick={"models": ["tiny"], "widths": [1, 8]},
)
def run(
    models: Annotated[list[str], 'names of `locore.load`, or "large" for one of 262,144 tokens'] = ["smollm2", "large"],  # noqa: B006
    widths: Annotated[list[int], "rows of a pass"] = list(WIDTHS),  # noqa: B006
) -> Iterator[Case]:
    """How long a pass of the model takes by its rows, and what of that is arithmetic."""
    torch.set_num_threads(1)
    for name in models:
        model = LARGE.model(POSITIONS) if name == "large" else locore.load(name)
        assert isinstance(model, HuggingFaceModel)
        prompted = model.prompted(
            "The weather is nice today and we are all going to the" if name != "large" else list(range(2, 18))
        )
        for rows in widths:
            yield {"model": name, "rows": rows}, partial(row_of, model, prompted, rows)
