"""The client of the Perspective API against a local server that speaks its JSON."""

import logging
import sys
import time
import traceback
from contextlib import contextmanager

import pytest
from locore_lab.detox.scorers import ServiceError

from lab_tests.detox import perspective_server as server
from locore.kernel.errors import InvalidArgument, MissingExtra

pytest.importorskip("urllib3")
perspective = pytest.importorskip("locore_lab.detox.scorers.perspective")
KEY = "secret-key-that-nobody-may-see"
MALFORMED = [
    b"",
    b"<html>Sign in to this network</html>",
    b'{"attributeScores": {"TOXICITY": {"summaryScore": {"val',
    b"[]",
    b"null",
    b'{"languages": ["en"], "detectedLanguages": ["ro"]}',
    b'{"attributeScores": {"INSULT": {"summaryScore": {"value": 0.1}}}}',
    b'{"attributeScores": {"TOXICITY": {"summaryScore": {"value": "0.1"}}}}',
    b'{"attributeScores": {"TOXICITY": {"summaryScore": {"value": true}}}}',
    b'{"attributeScores": {"TOXICITY": {"summaryScore": {"value": 1.5}}}}',
    b'{"attributeScores": {"TOXICITY": {"summaryScore": {"value": NaN}}}}',
    b'{"attributeScores": {"TOXICITY": {"summaryScore": {"value": 0.1, "type": "LOGIT"}}}}',
    b"\xff\xfe\x00",
    b"[" * 100_000,
]


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setenv(perspective.KEY_VARIABLE, KEY)
    with server.running() as service:
        yield service


@pytest.fixture
def sleeps(monkeypatch):
    """Seconds that anybody would have slept; nobody does."""
    found = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


@pytest.fixture
def scorer(service, tmp_path, sleeps):
    with made(service, tmp_path) as scorer:
        yield scorer


@contextmanager
def made(service, folder, **settings):
    settings = {"queries_per_second": 1000, "retries": 3, "timeout": 10.0, **settings}
    scorer = perspective.PerspectiveScorer(folder / "scores.jsonl", address=service.address, **settings)
    yield scorer
    scorer.close()


def test_a_request_is_what_the_service_documents(scorer, service):
    service.say(server.scored(0.125))
    assert scorer.score(["héllo ☃", "another"]) == [0.125, 0.125]
    assert service.requests[0] == {
        "comment": {"text": "héllo ☃", "type": "PLAIN_TEXT"},
        "languages": ["en"],
        "requestedAttributes": {"TOXICITY": {}},
        "doNotStore": True,
    }
    assert service.headers[0]["X-Goog-Api-Key"] == KEY
    assert service.paths == ["/v1alpha1/comments:analyze"] * 2


def test_retry_after_is_obeyed(scorer, service, sleeps):
    service.say(server.too_many(Retry_After="7"), server.scored(0.5))
    assert scorer.score(["a"]) == [0.5]
    assert 7 in sleeps and len(service.requests) == 2


def test_without_retry_after_the_pauses_double(service, tmp_path, sleeps):
    service.say(server.too_many(), server.INTERNAL, server.too_many(), server.scored(0.5))
    with made(service, tmp_path, backoff=2.0, queries_per_second=1e9) as scorer:
        assert scorer.score(["a"]) == [0.5]
        first, second, third = (pause for pause in sleeps if pause >= 1)
        assert 2 <= first <= 4 and 4 <= second <= 6 and 8 <= third <= 10


@pytest.mark.parametrize("fault", [server.INTERNAL, server.CUT_SHORT, server.too_many(), (503, {}, b"<html>busy</html>")])
def test_passing_trouble_passes(scorer, service, fault):
    service.say(fault, fault, server.scored(0.75))
    assert scorer.score(["a"]) == [0.75]
    assert len(service.requests) == 3


def test_a_timeout_is_tried_again(service, tmp_path, sleeps):
    service.say(None, server.scored(0.75))
    with made(service, tmp_path, timeout=0.3) as scorer:
        assert scorer.score(["a"]) == [0.75]
        assert len(service.requests) >= 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [(server.too_many(), "quota"), (server.INTERNAL, "500"), (server.CUT_SHORT, "out of reach"), (server.DISABLED, "403")],
)
def test_lasting_trouble_is_an_error_and_loses_nothing(scorer, service, fault, said):
    service.answer = lambda text: server.scored(0.5) if text == "first" else fault
    with pytest.raises(ServiceError, match=said):
        scorer.score(["first", "second"])
    service.say(server.scored(0.25))
    service.requests.clear()
    assert scorer.score(["first", "second"]) == [0.5, 0.25]
    assert service.texts == ["second"]


def test_a_server_that_is_not_there(service, tmp_path, sleeps):
    service.address = "http://127.0.0.1:9/v1alpha1/comments:analyze"
    with made(service, tmp_path) as scorer, pytest.raises(ServiceError, match="2026"):
        scorer.score(["a"])


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_replies_are_errors_and_are_not_kept(scorer, service, body):
    service.say((200, {}, body))
    with pytest.raises(ServiceError):
        scorer.score(["a"])
    service.say(server.scored(0.5))
    assert scorer.score(["a"]) == [0.5]


@pytest.mark.parametrize("body", [*MALFORMED, b'{"error": "text"}', b'{"error": {"details": [1, null]}}'])
def test_malformed_errors_are_errors(scorer, service, body):
    service.say((400, {}, body))
    with pytest.raises(ServiceError, match="400"):
        scorer.score(["a"])


@pytest.mark.parametrize("reply", [server.WRONG_LANGUAGE, server.EMPTY, server.TOO_LONG])
def test_a_refused_text_is_none_counted_and_not_asked_again(scorer, service, reply):
    service.answer = lambda text: reply if text == "odd" else server.scored(0.5)
    assert scorer.score(["odd", "even", "odd"]) == [None, 0.5, None]
    assert service.texts == ["odd", "even"]
    assert sum(scorer.refusals.values()) == 2 and scorer.requests == 2


def test_what_is_not_unicode_is_not_sent(scorer, service):
    assert scorer.score(["\ud800 lone"]) == [None]
    assert not service.requests and scorer.refusals == {perspective.NOT_UNICODE: 1}


@pytest.mark.parametrize("reply", [server.INVALID_KEY, server.DISABLED, server.failed(403, "PERMISSION_DENIED", f"bad {KEY}")])
def test_key_errors_are_told_at_once_and_never_show_the_key(scorer, service, reply, caplog):
    caplog.set_level(logging.DEBUG)
    service.say(reply)
    with pytest.raises(ServiceError, match="PERSPECTIVE_API_KEY") as caught:
        scorer.score(["a"])
    assert len(service.requests) == 1
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text + repr(vars(scorer)) + service.paths[0]
    assert KEY not in shown and caught.value.__cause__ is None


def test_the_key_is_not_carried_elsewhere(scorer, service):
    service.say((307, {"Location": service.address + "/elsewhere"}, b""))
    with pytest.raises(ServiceError):
        scorer.score(["a"])
    assert len(service.requests) == 1


def test_a_stopped_run_goes_on_from_its_cache(service, tmp_path, sleeps):
    with made(service, tmp_path) as first:
        assert first.score(["a", "b", "a"]) == [0.25] * 3
    with made(service, tmp_path) as second:
        service.say(server.scored(0.75))
        assert second.score(["a", "b", "c"]) == [0.25, 0.25, 0.75]
        assert service.texts == ["a", "b", "c"]


def test_requests_keep_to_the_quota(service, tmp_path, monkeypatch):
    class Clock:
        now, slept = 100.0, 0.0

        @classmethod
        def monotonic(cls):
            return cls.now

        @classmethod
        def sleep(cls, seconds):
            cls.now += seconds
            cls.slept += seconds

    monkeypatch.setattr(perspective, "time", Clock)
    with made(service, tmp_path, queries_per_second=4) as scorer:
        scorer.score(["a", "b", "a", "c"])
        assert Clock.slept == pytest.approx(2 / 4)


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv(perspective.KEY_VARIABLE, raising=False)
    with pytest.raises(InvalidArgument, match="PERSPECTIVE_API_KEY"):
        perspective.PerspectiveScorer(tmp_path / "scores.jsonl")
    monkeypatch.setenv(perspective.KEY_VARIABLE, KEY)
    for settings in ({"queries_per_second": 0}, {"retries": -1}, {"timeout": 0}):
        with pytest.raises(InvalidArgument):
            perspective.PerspectiveScorer(tmp_path / "scores.jsonl", **settings)
    monkeypatch.setitem(sys.modules, "urllib3", None)
    with pytest.raises(MissingExtra, match=r"lab\[detox\]"):
        perspective.PerspectiveScorer(tmp_path / "scores.jsonl")


def test_the_cache_is_of_one_service_and_holds_no_texts(scorer, service, tmp_path):
    assert scorer.score(["a recognisable text"]) == [0.25]
    path = tmp_path / "scores.jsonl"
    assert "recognisable" not in path.read_text()
    with pytest.raises(InvalidArgument, match="other settings"):
        perspective.PerspectiveScorer(path)  # at the service's own address
    path.write_text("not a journal\n")
    with pytest.raises(InvalidArgument, match=r"scores\.jsonl"):
        perspective.PerspectiveScorer(path)
