"""The answers follow p(text | constraint), and requests that share a run stay independent draws of it."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from scipy.stats import chi2_contingency, chisquare

import locore
from locore import choice, token
from locore.evidence import Particles, Record, Run
from locore.limits import Limits
from locore.models import MarkovModel
from locore.server.compute import Computer, is_exact_posterior, split
from locore.tokenizer import Tokenizer
from tests.effort import runs

FALSE_ALARM = 1e-6
TEXTS = [" very", " so", " too", " a", " not"]
JOB = {
    **{"prompt": [], "temperature": 1, "top_p": 1, "sampler": None, "budget": None, "canonical": None},
    "task": "sample",
    **{"max_tokens": 2, "min_tokens": 0, "ending": "eos", "n": 1, "seed": None, "num_particles": 2, "return_particles": False},
}


CASES = {
    # Enumerated, so that requests share the posterior.
    "auto": (choice(TEXTS), 2, 60, 20),
    # Accepted draws of the model; each request by itself.
    "rejection": (token(0, range(300)), 1, 12, 100),
}


@pytest.mark.parametrize("sampler", CASES)
def test_answers_follow_the_posterior(client, tiny, sampler):
    """Chi-square of 1,200 texts of requests made by 8 clients at once, against enumeration; false alarm 1e-6."""
    alpha, length, requests, n = CASES[sampler]

    def ask(_):
        body = {"constraint": alpha.to_json(), "sampler": sampler, "num_particles": 200}
        return client.completions.create(model="tiny", prompt="The weather is", max_tokens=length, n=n, extra_body=body)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(requests)))
    counts = Counter(choice.text for answer in answers for choice in answer.choices)
    truth = locore.generate(
        tiny, "The weather is", alpha, max_new_tokens=length, num_particles=5000, sampler="exact", seed=0
    ).posterior()
    assert set(counts) <= set(truth)
    assert fits(counts, {text: requests * n * p for text, p in truth.items()}) > FALSE_ALARM


def fits(counts, expected):
    """p-value of chi-square, rare outcomes put together."""
    often = [key for key in expected if expected[key] >= 5]
    pairs = [(counts[key], expected[key]) for key in often]
    rest = sum(expected.values()) - sum(wanted for _, wanted in pairs)
    if rest > 1e-6:
        pairs.append((sum(counts.values()) - sum(found for found, _ in pairs), rest))
    assert len(pairs) > 2
    return chisquare([found for found, _ in pairs], [wanted for _, wanted in pairs]).pvalue


ALPHA = locore.contains("ab") | locore.ends_with("b")


@pytest.fixture(scope="module")
def computer():
    """A model of three tokens, of which the first ends the text."""
    tokenizer = Tokenizer.from_tokens([None, b"a", b"b"], [0])
    model = MarkovModel([0.2, 0.5, 0.3], [[1, 0, 0], [0.1, 0.3, 0.6], [0.3, 0.6, 0.1]], tokenizer=tokenizer)
    return Computer(model, Limits())


def answers_of(computer, sampler, number, **options):
    """The texts of requests that share a run."""
    jobs = [{**JOB, "constraint": ALPHA.to_json(), "sampler": sampler, "id": i, **options} for i in range(number)]
    group = computer.results(jobs)
    return [group.of(job["id"])["choices"][0]["text"] for job in jobs]


@pytest.mark.parametrize("sampler", ["auto", "masked"])
def test_answers_that_share_a_run_are_independent(computer, sampler):
    """Contingency of the texts of two requests, 300 times; false alarm 1e-6."""
    pairs = Counter(tuple(answers_of(computer, sampler, 2)) for _ in range(runs(300)))
    assert independent(pairs) > FALSE_ALARM


def test_the_check_of_independence_sees_shared_particles(computer):
    """Two answers from the same two particles are what must not happen, and what the test above would find."""
    job = {**JOB, "constraint": ALPHA.to_json(), "sampler": "masked"}
    pairs = Counter()
    for _ in range(300):
        particles, _ = computer.particles(job, 2)
        pairs[tuple(particles.resample(2).texts)] += 1
    assert independent(pairs) < FALSE_ALARM


def independent(pairs):
    """p-value of the independence of two texts; rare ones are put together."""
    common = {text for text, count in Counter(first for first, _ in pairs.elements()).items() if count > 12}
    kinds = [*sorted(common), None]

    def kind(text):
        return kinds.index(text if text in common else None)

    table = torch.zeros(len(kinds), len(kinds))
    for (first, second), count in pairs.items():
        table[kind(first), kind(second)] += count
    table = table[table.sum(1) > 0][:, table.sum(0) > 0]
    return chi2_contingency(table.numpy()).pvalue


@pytest.mark.slow
def test_a_divided_run_follows_the_law_of_its_parts(computer):
    """Texts of the second of three requests against those of a request by itself, 120 each; false alarm 1e-6."""
    shared = Counter(answers_of(computer, "masked", 3, max_tokens=3)[1] for _ in range(120))
    alone = Counter(answers_of(computer, "masked", 1, max_tokens=3)[0] for _ in range(120))
    texts = [text for text in shared | alone if shared[text] + alone[text] >= 20]
    rest = [120 - sum(counts[text] for text in texts) for counts in (shared, alone)]
    table = [
        [counts[text] for text in texts] + ([other] if sum(rest) else [])
        for counts, other in zip((shared, alone), rest, strict=True)
    ]
    assert chi2_contingency(table).pvalue > FALSE_ALARM


def test_zeros_are_dealt_out_too():
    """Three weights kept of eight: each half has the whole's mean in expectation; z-test, false alarm 1e-6."""
    weights = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    whole = Particles(
        torch.tensor([[0], [1], [2]]),
        (weights * 3 / 8).log(),
        record=Record(drawn=8),
        tokenizer=Tokenizer.integers(3),
        run=Run(lm_tokens=8),
    )
    generator = torch.Generator().manual_seed(0)
    means = torch.tensor(
        [
            [part.log_weights.exp().mean() if isinstance(part, Particles) else 0.0 for part in split(whole, 2, generator)]
            for _ in range(1000)
        ],
        dtype=torch.float64,
    )
    assert torch.allclose(means.sum(1), torch.tensor(2.0, dtype=torch.float64))  # nothing is lost
    error = means[:, 0].std() / 1000**0.5
    assert abs(means[:, 0].mean() - 1) < 4.9 * error


def test_an_exact_posterior_is_known_as_one(computer):
    job = {**JOB, "constraint": ALPHA.to_json()}
    exact, _ = computer.particles({**job, "sampler": "exact"}, 100)
    thinned, _ = computer.particles({**job, "sampler": "exact", "max_tokens": 6}, 4)
    sampled, _ = computer.particles({**job, "sampler": "masked"}, 100)
    assert [is_exact_posterior(p) for p in (exact, thinned, sampled)] == [True, False, False]
