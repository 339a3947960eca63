"""Do texts under a ban contain a banned phrase? Counted by plain search in many texts of each sampler.

    python -m locore_lab.micro.leaks --data FOLDER [--json lab/results/leaks.json]

FOLDER holds the prompts and phrases of `locore reproduce detox`. Zero is asked for, and reported whatever it is.
"""

import argparse
import json
import time
from pathlib import Path

import torch

import locore
from locore_lab.detox.prompts import load_material
from locore_lab.micro.machine import machine

SAMPLERS = ("auto", "swor", "twisted", "smc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--prompts", type=int, default=25)
    parser.add_argument("--particles", type=int, default=256)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    material = load_material(arguments.data)
    model, ban = locore.load(arguments.model), locore.ban(material.phrases)
    rows = []
    for sampler in SAMPLERS:
        texts, start = [], time.process_time()
        for seed, prompt in enumerate(material.prompts[: arguments.prompts]):
            texts += locore.generate(
                model, prompt.text, ban, max_new_tokens=20, num_particles=arguments.particles, sampler=sampler, seed=seed
            ).texts
        banned = sum(any(phrase in text for phrase in material.phrases) for text in texts)
        rows.append({"sampler": sampler, "texts": len(texts), "banned": banned, "seconds": time.process_time() - start})
        print(f"{sampler:10}{len(texts):8} texts{banned:4} with a banned phrase{rows[-1]['seconds']:8.1f} s", flush=True)
    print(f"{'all':10}{sum(row['texts'] for row in rows):8} texts{sum(row['banned'] for row in rows):4} with a banned phrase")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
