"""Do texts under a ban contain a banned phrase? Counted by plain search in many texts of each sampler.

Zero is asked for, and reported whatever it is.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import locore
from locore_lab.detox.prompts import built_in, load_material
from locore_lab.harness import Case, Row, measurement

SAMPLERS = ("auto", "swor", "twisted", "smc")


@measurement(
    "sampler | texts | with a banned phrase | CPU s",
    "{sampler} | {texts:,} | {banned} | {seconds:.1f}",
    quick={"prompts": 2, "particles": 8},
    after=lambda rows: f"{sum(row['banned'] for row in rows)} of {sum(row['texts'] for row in rows):,} texts hold one",
)
def run(
    data: Annotated[Path | None, "prompts and phrases of `locore reproduce detox`; mild ones of our own without"] = None,
    model: str = "tiny",
    prompts: int = 25,
    particles: int = 256,
) -> Iterator[Case]:
    material = load_material(data) if data else built_in()
    opened, ban = locore.load(model), locore.ban(material.phrases)

    def searched(sampler: str) -> Row:
        texts, start = [], time.process_time()
        for seed, prompt in enumerate(material.prompts[:prompts]):
            options = {"max_new_tokens": 20, "num_particles": particles, "sampler": sampler, "seed": seed}
            texts += locore.generate(opened, prompt.text, ban, **options).texts
        banned = sum(any(phrase in text for phrase in material.phrases) for text in texts)
        return {"texts": len(texts), "banned": banned, "seconds": time.process_time() - start}

    for sampler in SAMPLERS:
        yield {"sampler": sampler}, partial(searched, sampler)
