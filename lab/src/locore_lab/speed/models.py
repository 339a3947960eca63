"""The models of a run, one at a time in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

import locore
from locore.models import HuggingFaceModel
from locore_lab.speed.plan import SpeedPlan

ACCELERATOR_PROMPT = 16  # tokens


class Models:
    """Made when first asked for; another name lets the last one go."""

    def __init__(self, make: Callable[[str], HuggingFaceModel]) -> None:
        self._make = make
        self._last: tuple[str, HuggingFaceModel] | None = None

    def __getitem__(self, name: str) -> HuggingFaceModel:
        if self._last is None or self._last[0] != name:
            self._last = None  # first: both may not fit
            self._last = name, self._make(name)
        return self._last[1]


def on_cpu(plan: SpeedPlan) -> Models:
    """The bundled model and the Llamas of a plan, in float32."""

    def make(name: str) -> HuggingFaceModel:
        if name in plan.shapes:
            return plan.shapes[name].model(max(plan.neighbour_prompts + plan.sampling_prompts) + plan.n)
        model = locore.load(name)
        assert isinstance(model, HuggingFaceModel)
        return model

    return Models(make)


def on_device(plan: SpeedPlan) -> Models:
    """The large Llamas of a plan, in bfloat16 on its device."""
    positions = ACCELERATOR_PROMPT + plan.n
    return Models(lambda name: plan.accelerator_shapes[name].model(positions, str(plan.device), torch.bfloat16))
