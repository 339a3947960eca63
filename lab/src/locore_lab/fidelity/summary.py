"""From rows to conclusions: who is closer to the truth at the same price, by nominal LM tokens and by distinct contexts."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from typing import Any, NamedTuple

Row = dict[str, Any]
AXES = {"budget": "nominal LM tokens", "lm_contexts": "distinct contexts"}
CLOCK = {"cpu_seconds": "CPU seconds", "passes": "passes of the model"}
OURS = {"auto", "exact", "lcr", "mcmc", "swor", "twisted"}  # and what is named after them; all others are peers
SMC = ("smc", "smc, 1 block", "genlm-smc")
LARGE_TV = 0.1  # a "trust" verdict above it was wrong
NEGLIGIBLE = 1e-3  # smaller ones are all alike; else cells where a sampler enumerates would decide every geometric mean


class Point(NamedTuple):
    """One sampler on one problem at one price.

    Attributes:
        cost: on an axis.
        value: total variation, or RMSE of log Ẑ in nats.
        noise: how far it may be off by chance: of a TV its noise, of an RMSE two standard errors.
    """

    cost: float
    value: float
    noise: float


Curve = list[Point]


def is_peer(sampler: str) -> bool:
    """Is it a method that others use?"""
    family = re.match("[a-z]*", sampler)
    return family is None or family.group() not in OURS


def measured(row: Row) -> str:
    """What a problem is judged by: "tv", or "rmse" where the top sequences hold too little of the truth for a TV."""
    return "rmse" if row["tv"] is None else "tv"


def curves(rows: list[Row], measure: str, axis: str) -> dict[str, dict[str, Curve]]:
    """Problem -> sampler -> points by increasing cost; samplers without weights have no RMSE."""
    result: dict[str, dict[str, Curve]] = {}
    for row in sorted(rows, key=lambda row: (row[axis], row["budget"])):
        if measured(row) == measure and row[measure] is not None:
            noise = row["noise"] if measure == "tv" else 2 * row["rmse_error"]
            cost = max(float(row[axis]), 1.0)  # the first token's distribution costs nothing
            curve = result.setdefault(row["problem"], {}).setdefault(row["sampler"], [])
            if curve and curve[-1].cost == cost:
                curve.pop()  # no more was spent with a larger budget; the last run counts
            curve.append(Point(cost, row[measure], noise))
    return result


def at(curve: Curve, cost: float) -> Point | None:
    """A curve at some cost, between two measurements by a straight line on logarithmic scales; None outside of them."""
    place = bisect_left(curve, cost, key=lambda point: point.cost)
    if place < len(curve) and curve[place].cost == cost:
        return curve[place]
    if place in (0, len(curve)):
        return None
    low, high = curve[place - 1], curve[place]
    share = math.log(cost / low.cost) / math.log(high.cost / low.cost)

    def between(a: float, b: float) -> float:
        return math.exp((1 - share) * math.log(max(a, NEGLIGIBLE)) + share * math.log(max(b, NEGLIGIBLE)))

    return Point(cost, between(low.value, high.value), between(low.noise, high.noise))


def best(here: dict[str, Curve], names: list[str], cost: float) -> Point | None:
    """The smallest value of some samplers at some cost."""
    found = [point for name in names if name in here and (point := at(here[name], cost)) is not None]
    return min(found, key=lambda point: point.value, default=None)


def level(point: Point, measure: str) -> float:
    """What enters geometric means: a TV below its noise is not known to be any smaller."""
    return max(point.value, NEGLIGIBLE, point.noise if measure == "tv" else 0.0)


def mean_ratio(found: list[float]) -> float | None:
    """Geometric mean; None of nothing."""
    return math.exp(sum(map(math.log, found)) / len(found)) if found else None


def summary(rows: list[Row], measure: str) -> dict[str, dict[str, Any]]:
    """Sampler -> geometric mean over its cells, and its ratio to the best peer at the same price.

    Returns:
        For each sampler `peer`, `cells`, `mean`; and for each axis the geometric mean of the ratios to that peer that is the
        best in the same cell, and over how many cells. On the axis of contexts, a peer is known between its measurements only.
    """
    names = list(dict.fromkeys(row["sampler"] for row in rows if measured(row) == measure and row[measure] is not None))
    peers = [name for name in names if is_peer(name)]
    result: dict[str, dict[str, Any]] = {}
    for name in names:
        result[name] = {"peer": is_peer(name)}
        for axis in AXES:
            ratios, levels = [], []
            for here in curves(rows, measure, axis).values():
                for point in here.get(name, []):
                    levels.append(level(point, measure))
                    peer = best(here, peers, point.cost)
                    if peer is not None:
                        ratios.append(levels[-1] / level(peer, measure))
            if axis == "budget":
                result[name] |= {"cells": len(levels), "mean": mean_ratio(levels)}
            result[name][axis] = {"ratio": mean_ratio(ratios), "cells": len(ratios)}
    return result


def worse_than_smc(rows: list[Row], axis: str) -> dict[str, dict[str, Any]]:
    """Sampler -> how many of its cells SMC can be compared with at the same price, and those where it is worse beyond noise.

    SMC is the best of its variants. Beyond noise: what is measured less its noise exceeds SMC's value and SMC's noise. (By
    the triangle inequality a measured TV is off by at most the TV between the measured law and the true law of one draw,
    whose mean is the noise.)
    """
    result: dict[str, dict[str, Any]] = {}
    for measure in ("tv", "rmse"):
        for problem, here in curves(rows, measure, axis).items():
            for name in [name for name in here if name not in SMC]:
                found = result.setdefault(name, {"compared": 0, "worse": []})
                for point in here[name]:
                    smc = best(here, list(SMC), point.cost)
                    if smc is None:
                        continue
                    found["compared"] += 1
                    if point.value - point.noise > smc.value + smc.noise:
                        cell = {"problem": problem, "measure": measure, "cost": point.cost}
                        values = {"value": point.value, "noise": point.noise, "smc": smc.value, "smc_noise": smc.noise}
                        found["worse"].append(cell | values)
    return result


def calibration(rows: list[Row]) -> dict[str, Any]:
    """How often a run said "trust", how often so where the TV of one draw exceeds .1, and where it does so beyond noise.

    Of cells in which every run returned something.
    """
    # A run that returns nothing counts in the TV and has no verdict.
    rows = [row for row in rows if row["tv"] is not None and not row["failed"]]

    def trusted(chosen: list[Row]) -> int:
        return sum(row["verdicts"].get("trust", 0) for row in chosen)

    every = trusted(rows)
    wrong = trusted([row for row in rows if row["tv"] > LARGE_TV])
    beyond = trusted([row for row in rows if row["tv"] - row["noise"] > LARGE_TV])
    share = wrong / every if every else None
    return {"trust": every, "trust_but_wrong": wrong, "share": share, "wrong_beyond_noise": beyond}
