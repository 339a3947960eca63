"""Keys, addresses, and what must never be written down."""

from __future__ import annotations

import asyncio
import json

import pytest

from locore.cli import main
from locore.kernel.errors import InvalidArgument
from locore.server.access import Metrics, Observed, SameSite
from locore.server.api_errors import ApiError
from locore.server.queue import Queue
from locore.server.settings import Settings, is_loopback
from locore.server.task import Task
from tests.server.conftest import KEY

SECRET = "xyzzy-secret-prompt"


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/models", "/v1/completions", "/metrics", "/openapi.json", "/nothing", "/v1/constraint_schema"),
        *("/page/compare", "/page/nothing", "/page/", "//", "/page/../metrics", "/page/main.js/"),
    ],
)
@pytest.mark.parametrize(
    "given", [None, "", "Bearer", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", KEY, f"bearer{KEY}", "Bearer \xe4\xf6", "Basic YTpi"]
)
def test_without_the_key_nothing_is_told(server, path, given):
    headers = {"Authorization": given or ""}
    status, answered, body = server.request("GET", path, headers=headers)
    assert (status, json.loads(body)["error"]["code"]) == (401, "invalid_api_key")
    assert answered["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_who_watches_the_server_needs_no_key(server, path):
    assert server.request("GET", path, headers={"Authorization": ""})[0] == 200


def test_a_public_address_needs_a_key(monkeypatch, capsys):
    monkeypatch.delenv("LOCORE_API_KEY", raising=False)
    for host in ("0.0.0.0", "::", "192.168.1.1", "example.org"):
        with pytest.raises(InvalidArgument, match="no API key"):
            Settings(host=host)
        assert Settings(host=host, api_key=KEY).host == host
    assert main(["serve", "--host", "0.0.0.0"]) == 2
    assert "LOCORE_API_KEY" in capsys.readouterr().err


def test_this_machine_is_loopback():
    assert all(map(is_loopback, ["127.0.0.1", "127.8.0.1", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.example.org", "", "localhost "]))


@pytest.mark.parametrize(
    "wrong", [{"api_key": "short"}, {"timeout": 0}, {"workers": 0}, {"port": 70000}, {"timeout": float("inf")}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        Settings(**wrong)


def test_a_key_is_not_shown():
    assert KEY not in repr(Settings(api_key=KEY))


def test_a_key_comes_from_a_file_and_an_empty_one_is_no_key(tmp_path, capsys):
    (tmp_path / "key").write_text("\n")
    assert main(["serve", "--api-key-file", str(tmp_path / "key")]) == 2
    assert "longer" in capsys.readouterr().err


def test_a_model_that_is_not_there_ends_the_server(capsys):
    assert main(["serve", "--model", "/nowhere/at/all", "--port", "0"]) == 2
    assert "not a folder" in capsys.readouterr().err


def test_what_an_exception_says_is_not_logged(caplog):
    """A bug is answered with 500 and logged with its place only."""
    sent = []

    async def buggy(scope, receive, send):
        raise ValueError(SECRET)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    asyncio.run(Observed(buggy, Metrics())(scope, None, send))
    assert sent[0]["status"] == 500 and b"internal_error" in sent[1]["body"]
    assert "buggy" in caplog.text and SECRET not in caplog.text


def test_prompts_texts_and_keys_are_in_no_log_and_no_metric(server):
    """Good requests and bad ones, in all the places where a client can put something."""
    good = {"model": "tiny", "prompt": SECRET, "max_tokens": 2}
    bodies = [
        good,
        {**good, "constraint": {"type": "choice", "texts": [SECRET]}},
        {**good, "constraint": {"type": "regex", "pattern": f"({SECRET}"}},
        {**good, "constraint": {"type": SECRET}},
        {**good, SECRET: SECRET},
        {**good, "model": SECRET},
        {**good, "user": SECRET},
        {"model": "tiny", "messages": [{"role": SECRET, "content": SECRET}]},
    ]
    for body in bodies:
        server.post(body)
        server.post(body, "/v1/chat/completions")
    server.request("POST", "/v1/completions", SECRET.encode())
    server.request("GET", f"/{SECRET}?{SECRET}={SECRET}")
    server.request("GET", "/v1/models", headers={"Authorization": f"Bearer {SECRET}", "X-Request-Id": SECRET})
    written = server.log.read_text() + server.get("/metrics")[1].decode()
    assert "/v1/completions" in written
    for secret in (SECRET, KEY):
        assert secret not in written


def asked_by(host: str, origin: str | None = None, hosts: tuple[str, ...] = (), any_host: bool = False) -> int:
    """The status of a request with this Host and Origin."""
    sent = []

    async def welcome(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        sent.append(message)

    headers = [(b"host", host.encode())] + ([] if origin is None else [(b"origin", origin.encode())])
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers}
    asyncio.run(SameSite(welcome, hosts, any_host)(scope, None, send))
    return sent[0]["status"]


def test_a_name_that_was_made_to_lead_here_is_refused():
    """DNS rebinding: the browser sends the name that the attacker owns."""
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST", "ours.example:8000"):
        assert asked_by(host, hosts=("ours.example",)) == 200
    for host in ("evil.example", "evil.example:8000", "", "localhost.evil.example", "127.0.0.1.evil.example", "[::1"):
        assert asked_by(host) == 403
        assert asked_by(host, any_host=True) == 200  # a key keeps others out


def test_a_page_of_another_site_is_refused():
    assert asked_by("localhost:8000", "http://localhost:8000") == 200
    assert asked_by("x:1", "https://front.example", hosts=("front.example",), any_host=True) == 200
    for origin in ("http://evil.example", "http://localhost:9000", "null", "", "file://", "http://[", "http://[::1"):
        assert asked_by("localhost:8000", origin) == asked_by("localhost:8000", origin, any_host=True) == 403


def test_a_server_that_stops_says_so_to_all_that_wait():
    async def stop() -> list[str]:
        queue = Queue(Settings(), Metrics())
        bundle = queue.submit([Task("a", 2), Task("b", 2)])
        queue.drain()
        await bundle.wait(1)
        errors = []
        for ask in (bundle.plain, lambda: queue.submit([Task("c", 2)])):
            with pytest.raises(ApiError) as raised:
                ask()
            errors.append((raised.value.status_code, raised.value.code))
        return errors

    assert asyncio.run(stop()) == [(503, "shutting_down")] * 2


def test_owners_take_turns():
    """Of one who has many requests waiting and one who has one, the second is not behind all of the first."""

    async def order() -> list[str]:
        queue, taken = Queue(Settings(together=1), Metrics()), []
        worker = queue.workers[0]
        worker.has_room = lambda job, times: len(taken) < 4
        worker.take = lambda job: taken.append(job.owner)
        hidden, worker.has_room = worker.has_room, lambda job, times: False
        for owner in ("many", "many", "many", "one"):
            queue.submit([Task("a", 2)], owner)
        worker.has_room = hidden
        queue._dispatch()
        return taken

    assert asyncio.run(order()) == ["many", "one", "many", "many"]
