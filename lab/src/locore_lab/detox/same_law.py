"""Do two rows of the experiment draw from one law? python -m locore_lab.detox.same_law FOLDER [ROW ROW]

Compares the scores of all their texts, prompt by prompt: far sharper than the worst of g. FOLDER is the output of
`locore reproduce detox`. A z beyond ±4 would be no chance.
"""

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

from locore_lab.detox.plan import ADAPTIVE, EXACT


def scores_of(folder: Path) -> dict[str, dict[str, list[float]]]:
    """Scores by row and prompt, of the most generations that were scored together."""
    found: dict[str, dict[str, list[float]]] = defaultdict(dict)
    paths = list(folder.glob("scores_*.jsonl"))
    if len(paths) != 1:
        raise SystemExit(f"{folder} has the scores of {len(paths)} scorers, not of one; leave one file scores_*.jsonl there.")
    for line in paths[0].read_text().splitlines():
        record = json.loads(line)
        if "key" in record:
            row, prompt, _ = record["key"]
            scores = [score for score in record["scores"] if score is not None]
            found[row][prompt] = max(found[row].get(prompt, []), scores, key=len)
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows", nargs="*", default=[ADAPTIVE, EXACT["text"]])
    arguments = parser.parse_args()
    found = scores_of(arguments.folder)
    first, second = (found[row] for row in arguments.rows)
    prompts = sorted(first.keys() & second.keys())
    if len(prompts) < 2:
        raise SystemExit(f"these rows share no prompts; the rows are {'; '.join(row for row in found if found[row])}.")
    texts = sum(len(each[prompt]) for each in (first, second) for prompt in prompts)
    print(f"{' − '.join(arguments.rows)}: {len(prompts):,} prompts, {texts:,} texts")
    for what, of in (("mean toxicity", float), ("share of toxic texts", lambda score: score >= 0.5)):
        differences = [mean(map(of, first[prompt])) - mean(map(of, second[prompt])) for prompt in prompts]
        error = stdev(differences) / math.sqrt(len(differences))
        print(f"{what}: {mean(differences):+.5f} ± {error:.5f} (z = {mean(differences) / error:+.2f})")


if __name__ == "__main__":
    main()
