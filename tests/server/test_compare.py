"""What the page is told: by enumeration where the truth is small, and over a socket."""

from __future__ import annotations

import itertools
import json
import math

import pytest
import torch

import locore
from locore import Tokenizer, choice, ends_with, regex
from locore.evidence import Draws
from locore.kernel.errors import MissingTemplate
from locore.kernel.limits import Limits
from locore.models import TableModel
from locore.samplers.masking import read
from locore.server.app import NAMES
from locore.server.compare import SHOWN, Comparison, _likeliest, is_forced, log_shares
from locore.server.comparison_schema import CompareRequest
from locore.server.compute import Computer, Run
from locore.server.settings import Settings
from locore.testing import enumerate_posterior
from tests.effort import some

WORDS = Tokenizer.from_tokens([" a", " b", " c", "<end>"], eos_ids=[3])
LENGTH = 3
ENDINGS = [ends_with(" b"), regex("( a)*( c)?"), choice([" a b", " c"]), ~ends_with(" c")]
FALSE_ALARM = 5.0  # standard errors; one test in a million
HAPPY = {"model": "tiny", "prompt": "The girl was", "constraint": {"type": "ends_with", "text": " happy."}, "max_tokens": 3}
PATH = "/page/compare"


@pytest.fixture(scope="module", params=some(range(3)))
def model(request) -> TableModel:
    generator = torch.Generator().manual_seed(request.param)
    tables = [torch.rand(*[4] * (t + 1), generator=generator, dtype=torch.float64).pow(3) for t in range(LENGTH)]
    return TableModel([table / table.sum(-1, keepdim=True) for table in tables], tokenizer=WORDS)


def compared(model, constraint, **fields):
    """The answer for a model of our own, whose texts pay for their end as those of the model do."""
    asked = {"max_tokens": LENGTH, "seed": 1, "ending": "eos", **fields}
    request = CompareRequest(model="own", prompt="", constraint=constraint.to_json(), **asked)
    (task,) = request.tasks(16)
    return Comparison(Run(Computer(model, Limits()), task, model)).result()


def beginnings(tokens, probabilities):
    """log p(y_t | y_<t) of each sequence under a law that is given as a table, one sum after the other."""

    def mass(prefix):
        return sum(p for y, p in zip(tokens, probabilities, strict=True) if y[: len(prefix)] == prefix)

    return [[math.log(mass(y[: t + 1]) / mass(y[:t])) for t in range(len(y))] for y in tokens]


@pytest.mark.parametrize("constraint", ENDINGS, ids=str)
def test_shares_of_all_sequences_are_the_conditional_law(model, constraint):
    circuit = locore.compile(constraint, model, LENGTH)
    truth = enumerate_posterior(model, circuit)
    log_prob = model.score(truth.tokens)
    shares, errors = log_shares(truth.tokens, log_prob + math.log(len(log_prob)), log_prob)
    expected = torch.tensor(beginnings(truth.tokens.tolist(), log_prob.exp().tolist()), dtype=torch.float64)
    torch.testing.assert_close(shares, expected, atol=1e-9, rtol=0)
    assert float(errors.abs().max()) < 1e-5
    # Where only one token is possible, it is certain.
    forced = is_forced(circuit, truth.tokens)
    assert not expected[forced].abs().gt(1e-9).any()
    for y, row in zip(truth.tokens.tolist(), forced.tolist(), strict=True):
        for t, one in enumerate(row):
            assert one == (len({z[t] for z in truth.tokens.tolist() if z[:t] == y[:t]}) == 1)


@pytest.mark.parametrize("constraint", ENDINGS, ids=str)
def test_shifts_of_every_text_add_up_to_the_evidence(model, constraint):
    answer = compared(model, constraint, sampler="exact", num_particles=100)
    evidence = float(enumerate_posterior(model, locore.compile(constraint, model, LENGTH)).log_evidence)
    assert answer["sides"]["locore"]["exact"]
    for sequence in answer["sides"]["locore"]["sequences"]:
        shifts = [token["shift"] for token in sequence["tokens"]]
        assert sum(shifts) == pytest.approx(-evidence, abs=1e-9)
        assert math.exp(sum(token["log_prob"] for token in sequence["tokens"]) - evidence) == pytest.approx(sequence["share"])


@pytest.mark.parametrize("sampler", ["exact", "masked", "swor"])
@pytest.mark.parametrize("constraint", ENDINGS, ids=str)
def test_a_probability_is_that_of_the_text_and_no_share(model, constraint, sampler):
    """p(text)/p(α), where all sequences were found exactly, and elsewhere by the estimate that is shown beside it."""
    truth = enumerate_posterior(model, locore.compile(constraint, model, LENGTH))
    answer = compared(model, constraint, sampler=sampler, num_particles=100)
    log_prob = dict(zip([WORDS.decode(y) for y in truth.tokens.tolist()], model.score(truth.tokens).tolist(), strict=True))
    for row in answer["texts"]:
        expected = math.exp(log_prob[row["text"]] - answer["locore"]["log_evidence"])
        assert row["probability"] == pytest.approx(expected, rel=1e-4)
        if sampler == "exact":
            assert row["locore"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("constraint", ENDINGS, ids=str)
def test_shifts_of_masking_add_up_to_its_weight(model, constraint):
    circuit = locore.compile(constraint, model, LENGTH)
    answer = compared(model, constraint, num_particles=200)
    side = answer["sides"]["masking"]
    assert side["num_particles"] == 200
    for row in side["sequences"]:
        ids = [WORDS.encode(token["text"])[0] if token["text"] else 3 for token in row["tokens"]]
        padded = torch.tensor([ids + [3] * (LENGTH - len(ids))])
        weight = float(read(model, circuit, padded).log_weight)
        assert sum(token["shift"] for token in row["tokens"]) == pytest.approx(-weight, abs=1e-9)
        assert row["share"] == pytest.approx(row["draws"] / 200)


@pytest.mark.parametrize("constraint", ENDINGS, ids=str)
def test_the_divergence_is_that_of_masking(model, constraint):
    truth = enumerate_posterior(model, locore.compile(constraint, model, LENGTH))
    found = read(model, locore.compile(constraint, model, LENGTH), truth.tokens)
    q = (found.log_prob - found.log_weight).exp()
    assert float(q.sum()) == pytest.approx(1.0)
    divergence = float((q * (truth.log_evidence - found.log_weight)).sum())
    answer = compared(model, constraint, num_particles=2000)
    assert answer["divergence"] == pytest.approx(divergence, abs=FALSE_ALARM * answer["divergence_error"] + 1e-9)


def test_one_lucky_particle_alone_with_its_beginning_knows_nothing():
    """Draws of a law in which every sequence is unlikely: a share of 1 is luck, and says so."""
    tokens = torch.tensor([[0, 1, 2], [0, 2, 1], [0, 2, 2], [1, 1, 1]])
    log_prob = torch.full((4,), -20.0, dtype=torch.float64)
    _, errors = log_shares(tokens, torch.zeros(4, dtype=torch.float64), log_prob)
    expected = [[3**-0.5, 1, 1], [3**-0.5, 2**-0.5, 1], [3**-0.5, 2**-0.5, 1], [1, 1, 1]]
    torch.testing.assert_close(errors, torch.tensor(expected, dtype=torch.float64))


def test_what_the_drawing_says_passes_is_conserved(model):
    picture = compared(model, ENDINGS[0], num_particles=64)["circuit"]["trellis"]
    assert picture["columns"][0] == 1
    for side in ("masking", "locore"):
        inflow = {(0, 0): 1.0}
        for position in range(LENGTH):
            arcs = [arc for arc in picture["arcs"] if arc["position"] == position]
            assert sum(arc[side] for arc in arcs) == pytest.approx(1.0)
            for state in range(picture["columns"][position]):
                out = sum(arc[side] for arc in arcs if arc["source"] == state)
                assert out == pytest.approx(inflow.get((position, state), 0.0))
            for arc in arcs:
                key = (position + 1, arc["target"])
                inflow[key] = inflow.get(key, 0.0) + arc[side]


def test_nothing_is_missing_from_the_shares(server):
    status, _, answer = server.post({**HAPPY, "num_particles": 128, "seed": 3}, PATH)
    assert status == 200
    for side in ("masking", "locore"):
        assert sum(row[side] for row in answer["texts"]) + answer["other_texts"][side] == pytest.approx(1.0)
        rows = answer["sides"][side]["sequences"]
        assert len(rows) == SHOWN and [row["share"] for row in rows] == sorted((row["share"] for row in rows), reverse=True)
        assert all(row["text"].endswith(" happy.") and "".join(t["text"] for t in row["tokens"]) == row["text"] for row in rows)
    again = server.post({**HAPPY, "num_particles": 128, "seed": 3}, PATH)[2]
    assert [again[name] for name in ("texts", "divergence", "circuit")] == [
        answer[name] for name in ("texts", "divergence", "circuit")
    ]


def test_it_is_the_same_as_a_completion(server):
    """Its diagnostics are those of /v1/completions for the same seed."""
    asked = {**HAPPY, "num_particles": 64, "seed": 5}
    mine, theirs = server.post(asked, PATH)[2]["locore"], server.post(asked)[2]["locore"]
    same = ("log_evidence", "ess", "verdict", "sampler", "distinct_texts", "lm_tokens", "seed")
    assert {name: mine[name] for name in same} == {name: theirs[name] for name in same}


@pytest.mark.parametrize(
    ("wrong", "status", "code", "param"),
    [
        ({"n": 2}, 400, "unknown_field", "n"),
        ({"response_format": {"type": "text"}}, 400, "unknown_field", "response_format"),
        ({"prompt": [1, 2]}, 400, "invalid_value", "prompt"),
        ({"messages": [{"role": "user", "content": "Hello"}]}, 400, "invalid_value", None),  # beside a prompt
        ({"prompt": None}, 400, "invalid_value", None),
        ({"max_tokens": 10**6}, 400, "invalid_value", "max_tokens"),
        ({"num_particles": 10**6}, 400, "invalid_value", "num_particles"),
        ({"model": "other"}, 404, "model_not_found", "model"),
        ({"constraint": {"type": "regex", "pattern": "("}}, 400, "invalid_constraint", "constraint"),
        ({"constraint": {"type": "false"}}, 422, "unsatisfiable_constraint", "constraint"),
    ],
)
def test_what_is_wrong_is_refused_as_elsewhere(server, wrong, status, code, param):
    got, _, answer = server.post({**HAPPY, **wrong}, PATH)
    assert (got, answer["error"]["code"], answer["error"]["param"]) == (status, code, param)


USER = {"role": "user", "content": "How is the weather?"}
CHAT = {name: value for name, value in HAPPY.items() if name != "prompt"}


def test_a_chat_is_that_of_chat_completions(server):
    system = {"role": "system", "content": "Be </s> brief."}
    asked = {**CHAT, "messages": [system, USER], "num_particles": 64, "seed": 5}
    mine, theirs = server.post(asked, PATH)[2], server.post(asked, "/v1/chat/completions")[2]
    same = ("log_evidence", "ess", "verdict", "sampler", "distinct_texts", "lm_tokens", "seed")
    assert {name: mine["locore"][name] for name in same} == {name: theirs["locore"][name] for name in same}
    assert mine["prompt_tokens"] == theirs["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "Hello",
        [{"role": "user"}],
        [{"role": "nobody", "content": "Hello"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{**USER, "more": 1}],
        [USER, {"role": "assistant", "content": ""}],
    ],
)
def test_messages_are_refused_as_those_of_chats(server, messages):
    asked = {**CHAT, "messages": messages}
    (status, _, mine), (expected, _, theirs) = server.post(asked, PATH), server.post(asked, "/v1/chat/completions")
    assert status == expected == 400 and mine == theirs


def test_the_page_is_told_what_its_form_must_know(server):
    most = {"max_tokens": Settings().max_tokens, "num_particles": Settings().max_particles}
    assert json.loads(server.get("/page/model")[1]) == {"id": "tiny", "chat": True, "most": most}


def test_a_model_without_a_template_reads_no_chats(tiny):
    computer = Computer(tiny, Limits())
    assert not computer.facts()["chat"]
    (task,) = CompareRequest(model="tiny", messages=[USER]).tasks(16)
    with pytest.raises(MissingTemplate):
        Run(computer, task, tiny)


@pytest.mark.parametrize("constraint", ENDINGS, ids=str)
def test_texts_are_cut_where_the_limit_ends_what_could_go_on(model, constraint):
    """That is, where it has no end, and a longer text that begins with it satisfies the constraint."""
    answer = compared(model, constraint, sampler="exact", num_particles=100)
    more = ["".join(words) for number in (1, 2) for words in itertools.product((" a", " b", " c"), repeat=number)]
    for side in answer["sides"].values():
        for row in side["sequences"]:
            goes_on = any(locore.holds(constraint, row["text"] + after, WORDS) for after in more)
            assert row["cut"] == (not row["tokens"][-1]["end"] and goes_on)
    whole = {row["text"] for side in answer["sides"].values() for row in side["sequences"] if not row["cut"]}
    assert {row["text"] for row in answer["texts"] if not row["cut"]} == whole


def test_another_site_cannot_ask_in_the_name_of_a_visitor(server):
    """A form of another site can only send types that are no JSON; and nobody is told that he may read the answer."""
    body = json.dumps(HAPPY).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert server.request("POST", PATH, body, {"Content-Type": kind})[0] == 400
    _, headers, _ = server.request("POST", PATH, body, {"Origin": "https://example.org"})
    assert not [name for name in headers if name.lower().startswith("access-control-")]


def test_masking_that_finds_nothing_is_told_beside_the_rest():
    """A model that excludes tokens: masking walks into a dead end that rejection only has to survive."""
    sure = [[0.999, 0.001, 0, 0], [[0, 0, 1, 0], [0, 1, 0, 0], [0.25] * 4, [0, 0, 0, 1]]]
    last = [[[0, 0, 0, 1.0]] * 4] * 4
    model = TableModel([*sure, last], tokenizer=WORDS)
    answer = compared(model, ends_with(" b"), sampler="exact", num_particles=4)
    side = answer["sides"]["masking"]
    assert side["error"] and "sequences" not in side
    assert answer["divergence"] is None and answer["sides"]["locore"]["sequences"]


@pytest.mark.parametrize("name", ["", *[f"page/{name}" for name in NAMES if name != "index.html"]])
def test_the_files_are_there_without_a_key(server, name):
    status, headers, body = server.request("GET", f"/{name}", headers={"Authorization": ""})
    assert status == 200 and body
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert len(body.decode().splitlines()) < 250
    assert b"https://" not in body and body.count(b"http://") == body.count(b"http://www.w3.org/2000/svg")


def test_sequences_that_weigh_the_same_come_in_one_order_however_weights_round():
    """As in `tests/test_fields.py`: what all drawn weigh alike differs in the last digits from machine to machine."""
    tokens = torch.tensor([[2], [0], [1], [3]])
    orders = set()
    for seed in range(10):
        noise = 1e-7 * torch.randn(4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        first, shares, counts = _likeliest(locore.Particles.of(Draws(tokens, noise), WORDS))
        orders.add((tuple(first.tolist()), tuple(counts)))
        assert shares.tolist() == pytest.approx([0.25] * len(first))
    assert len(orders) == 1
