"""Do two rows of `locore reproduce detox` draw from one law? By the scores of all their texts, prompt by prompt.

That is far sharper than the worst of g. A z beyond ±4 would be no chance.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated

from locore.kernel.errors import InvalidArgument
from locore_lab.detox.plan import ADAPTIVE, EXACT
from locore_lab.harness import Case, Row, measurement, option


def scores_of(folder: Path) -> dict[str, dict[str, list[float]]]:
    """Scores by row and prompt, of the most generations that were scored together."""
    found: dict[str, dict[str, list[float]]] = defaultdict(dict)
    paths = list(folder.glob("scores_*.jsonl"))
    if len(paths) != 1:
        raise InvalidArgument(
            f"{folder} has the scores of {len(paths)} scorers, not of one; leave one file scores_*.jsonl there."
        )
    for line in paths[0].read_text().splitlines():
        record = json.loads(line)
        if "key" in record:
            row, prompt, _ = record["key"]
            scores = [score for score in record["scores"] if score is not None]
            found[row][prompt] = max(found[row].get(prompt, []), scores, key=len)
    return found


@measurement(
    "of each text | difference | standard error | z | prompts | texts",
    "{what} | {difference:+.5f} | {error:.5f} | {z:+.2f} | {prompts:,} | {texts:,}",
)
def run(
    folder: Annotated[Path, "what `locore reproduce detox` wrote"],
    rows: Annotated[list[str], option("Two of its rows.", "--row")] = (ADAPTIVE, EXACT["text"]),
) -> Iterator[Case]:
    found = scores_of(folder)
    first, second = (found[row] for row in rows)
    prompts = sorted(first.keys() & second.keys())
    if len(prompts) < 2:
        raise InvalidArgument(f"these rows share no prompts; the rows are {'; '.join(row for row in found if found[row])}.")
    texts = sum(len(each[prompt]) for each in (first, second) for prompt in prompts)

    def compared(of: Callable[[float], float]) -> Row:
        differences = [mean(map(of, first[prompt])) - mean(map(of, second[prompt])) for prompt in prompts]
        difference, error = mean(differences), stdev(differences) / math.sqrt(len(differences))
        return {"difference": difference, "error": error, "z": difference / error, "prompts": len(prompts), "texts": texts}

    for what, of in (("mean toxicity", float), ("share of toxic texts", lambda score: score >= 0.5)):
        yield {"what": what}, partial(compared, of)
