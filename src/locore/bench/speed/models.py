"""The models of a run, one at a time in memory."""

from __future__ import annotations

import locore
from locore.bench.speed.plan import Plan
from locore.models import HuggingFaceModel


class Models:
    """Made when first asked for; another name lets the last one go."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._last: tuple[str, HuggingFaceModel] | None = None

    def __getitem__(self, name: str) -> HuggingFaceModel:
        if self._last is None or self._last[0] != name:
            self._last = None  # first: both may not fit
            self._last = name, self._made(name)
        return self._last[1]

    def _made(self, name: str) -> HuggingFaceModel:
        plan = self._plan
        if name in plan.shapes:
            return plan.shapes[name].model(max(plan.neighbour_prompts + plan.sampling_prompts) + plan.n)
        model = locore.load(name)
        assert isinstance(model, HuggingFaceModel)
        return model
