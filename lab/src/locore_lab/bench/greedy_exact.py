"""The picture of the README: the truth, masking without weights, and Locore, on a question that can be enumerated.

The question is the first example of `python -m locore_lab.demo`, on SmolLM2, with its seed and numbers of draws. It was chosen
because it shows the fault. No table of the model is prepared.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from locore.io import write_whole
from locore_lab.shared import REPOSITORY, RESULTS

NUMBERS = RESULTS / "greedy_exact.json"
FIGURE = "docs/figures/greedy_exact_{theme}.svg"
SEED = 0
TRUTH, MASKING, LOCORE = "truth", "masking", "locore"


class Look(NamedTuple):
    """Colours of a theme, in which all pictures of the pages are drawn."""

    text: str
    faint: str
    bars: dict[str, str]

    def drawing(self, points: float) -> AbstractContextManager[None]:
        """The settings of matplotlib inside, with a font of so many points; the same data give the same file."""
        return rc_context(
            {"font.size": points, "text.color": self.text, "svg.hashsalt": "locore", "font.family": "DejaVu Sans"}
        )

    def dress(self, axes: Axes) -> None:
        """Two faint axes, and numbers in the colour of text."""
        axes.tick_params(colors=self.text)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(self.faint)


LOOKS = {
    "light": Look("#1f2328", "#d0d7de", {TRUTH: "#8c959f", LOCORE: "#0969da", MASKING: "#d4570a"}),
    "dark": Look("#e6edf3", "#3d444d", {TRUTH: "#9198a1", LOCORE: "#4493f8", MASKING: "#f0883e"}),
}


def measure() -> dict[str, Any]:
    """What the demonstration computes."""
    import locore
    from locore_lab.demo import examples

    model = locore.load("smollm2")
    assert isinstance(model, locore.models.HuggingFaceModel)
    truth, answers = examples.run_chat(model, SEED, print)
    by_name = {MASKING: answers[0], LOCORE: answers[2]}
    posteriors = {TRUTH: truth.posterior, **{name: answer.posterior for name, answer in by_name.items()}}
    return {
        "question": examples.QUESTION,
        "sequences": truth.sequences,
        "log_evidence": round(truth.log_evidence, 4),
        "texts": {text: {name: round(law.get(text, 0.0), 5) for name, law in posteriors.items()} for text in examples.CHOICES},
        "draws": {name: answer.draws for name, answer in by_name.items()},
        "lm_tokens": {TRUTH: truth.lm_tokens, **{name: answer.lm_tokens for name, answer in by_name.items()}},
        "distance": {name: round(truth.distance(answer.posterior), 4) for name, answer in by_name.items()},
    }


def draw(found: dict[str, Any], theme: str) -> Path:
    """Three bars for each text, most probable first."""
    look, texts = LOOKS[theme], found["texts"]
    names = {
        TRUTH: f"the truth: all {found['sequences']:,} ways to write one of them",
        LOCORE: f"Locore: {found['lm_tokens'][LOCORE]:,} LM tokens, {found['distance'][LOCORE]:.2f} from the truth",
        MASKING: f"masking: {found['lm_tokens'][MASKING]:,} LM tokens, {found['distance'][MASKING]:.2f} from the truth",
    }
    with look.drawing(10):
        figure = Figure(figsize=(8, 3.9))
        axes = figure.add_axes((0.215, 0.02, 0.76, 0.83))
        for k, (name, label) in enumerate(names.items()):
            values = [100 * laws[name] for laws in texts.values()]
            places = [row + 0.27 * (k - 1) for row in range(len(texts))]
            axes.barh(places, values, 0.25, color=look.bars[name], label=label)
            for place, value in zip(places, values, strict=True):
                axes.text(value + 0.6, place, f"{value:.1f} %", va="center", fontsize=7.5)
        axes.set_yticks(range(len(texts)), list(texts))
        axes.invert_yaxis()
        axes.set_xticks([])
        axes.tick_params(axis="y", length=0, labelcolor=look.text)
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.spines["left"].set_color(look.faint)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.2), frameon=False, labelcolor=look.text)
        title = f"“{found['question']}” The answer has to be one of these five"
        figure.text(0.02, 0.94, title, fontsize=12, weight="bold")
        figure.text(0.02, 0.885, "How often SmolLM2 gives each answer", fontsize=10)
        path = REPOSITORY / FIGURE.format(theme=theme)
        figure.savefig(path, metadata={"Date": None}, transparent=True)
    return path


def run(draw_only: Annotated[bool, typer.Option("--draw", help="Only draw the numbers that are there.")] = False) -> None:
    """Measure, write the numbers, and draw the picture of the README: truth, masking and Locore."""
    if not draw_only:
        with tempfile.TemporaryDirectory() as cache:
            os.environ["LOCORE_CACHE"] = cache
            write_whole(NUMBERS, json.dumps(measure(), indent=1, ensure_ascii=False) + "\n")
    found = json.loads(NUMBERS.read_text())
    for theme in LOOKS:
        print(draw(found, theme))
