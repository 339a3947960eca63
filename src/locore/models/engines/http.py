"""JSON over HTTP to an engine: patience, a bounded number of requests at once, keys that stay secret, errors that help."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from locore.kernel.errors import EngineError, InvalidArgument, MissingExtra
from locore.models.engines.model import Refused

KEY_VARIABLE = "LOCORE_ENGINE_API_KEY"
SAID = 300  # characters of an engine's own words in a message


class JsonClient:
    """Asks one server, with at most so many requests at once.

    Attributes:
        address: scheme, host, port and perhaps the beginning of a path.
    """

    def __init__(
        self,
        address: str,
        api_key: str | None = None,
        timeout: float = 300.0,
        retries: int = 4,
        backoff: float = 0.5,
        connections: int = 16,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            address: such as http://127.0.0.1:8000, to which the paths of requests are added.
            api_key: sent as a bearer token; `LOCORE_ENGINE_API_KEY` of the environment by default.
            timeout: seconds to wait for a connection, and for each part of an answer.
            retries: after 429, 5xx, timeouts and broken connections, for each request.
            backoff: seconds before the first retry, doubled before each further one; the server's `Retry-After` goes before.
            connections: requests at once.

        Raises:
            InvalidArgument: a number is out of range, or the address is none, or has a password in it.
            MissingExtra: urllib3 is not installed.
        """
        try:
            from locore.patience import patient_pool
        except ImportError:
            raise MissingExtra("Engines over HTTP need urllib3: pip install 'locore[engines]'") from None
        if not (timeout > 0 and retries >= 0 and backoff > 0 and connections >= 1):
            raise InvalidArgument("timeout and backoff must be positive, retries at least 0 and connections at least 1.")
        self.address = _checked(address)
        key = os.environ.get(KEY_VARIABLE, "").strip() if api_key is None else api_key
        if not (key.isascii() and (key.isprintable() or not key)):
            raise InvalidArgument(f"The key of the engine ({KEY_VARIABLE}) has characters that no HTTP header can carry.")
        self._key = key
        self._pool = patient_pool(retries, timeout, backoff, connections)
        self._connections = connections

    def get(self, path: str) -> Any:
        """The parsed answer to a GET; errors as `post`."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The parsed answer to one request.

        Raises:
            Refused: a status of 4xx.
            EngineError: the engine is out of reach, in trouble, or answers no JSON.
        """
        return self._ask("POST", path, body)

    def post_all(self, path: str, bodies: Sequence[dict[str, Any]]) -> list[Any]:
        """The parsed answers to many requests, in their order; errors as `post`, of the first that fails."""
        if len(bodies) < 2:
            return [self.post(path, body) for body in bodies]
        with ThreadPoolExecutor(min(self._connections, len(bodies))) as threads:
            try:
                return list(threads.map(lambda body: self.post(path, body), bodies))
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def tokenized(self, body: dict[str, Any]) -> list[int] | None:
        """The ids of `/tokenize`, which engines have beside OpenAI's API; None where there is none."""
        try:
            answer = self.post("/tokenize", body)
        except Refused as refusal:
            if refusal.status in (400, 404, 405):  # 400: started without a tokenizer
                return None
            raise
        ids = answer.get("tokens") if isinstance(answer, dict) else None
        return ids if isinstance(ids, list) else None

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        from urllib3 import exceptions

        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self._key}"} if self._key else {})}
        data = None if body is None else json.dumps(body).encode()
        try:
            reply = self._pool.request(method, self.address + path, body=data, headers=headers)
        except exceptions.MaxRetryError as error:
            what = type(error.reason).__name__
        except exceptions.HTTPError as error:
            what = type(error).__name__
        else:
            return self._parsed(path, reply.status, reply.data)
        # Not chained: the causes carry the request, and with it the key.
        raise EngineError(
            f"The engine at {self.address} is out of reach ({what}, {path}). Start it, check the address, or give it more time "
            "with a larger `timeout`."
        )

    def _parsed(self, path: str, status: int, data: bytes) -> Any:
        if status == 200:
            try:
                return json.loads(data)
            except ValueError:  # of a decoder, of any encoding
                raise EngineError(f"{self.address}{path} answered what is no JSON. Is it the server you mean?") from None
        said = self._said(data)
        what = f"{self.address}{path} answered {status}" + (f": {said}" if said else "") + ". "
        if status in (401, 403):
            raise Refused(what + f"Set its key in the environment as {KEY_VARIABLE}, or give api_key.", status, said)
        if 400 <= status < 500 and status != 429:
            raise Refused(what + "It does not do what was asked; see docs/engines.md.", status, said)
        if status == 429:
            raise EngineError(what + "It is overloaded: use fewer `connections`, or ask later.")
        raise EngineError(what + "It is in trouble: look at its log, then ask again.")

    def _said(self, data: bytes) -> str:
        """The engine's own words, without the key."""
        try:
            parsed = json.loads(data)
        except ValueError:
            return ""
        error = parsed.get("error", parsed) if isinstance(parsed, dict) else None
        message = error.get("message", error.get("detail", "")) if isinstance(error, dict) else error
        said = " ".join(str(message or "").split())[:SAID].rstrip(". ")
        return said.replace(self._key, "***") if self._key else said


def _checked(address: str) -> str:
    """An address without a slash at the end."""
    parts = urlsplit(address)
    if parts.username or parts.password:
        raise InvalidArgument(f"The address of an engine must not carry a password. Set {KEY_VARIABLE} in the environment.")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidArgument(f"{address!r} is not the address of an engine; give one such as http://127.0.0.1:8000/v1.")
    try:
        _ = parts.port
    except ValueError:
        raise InvalidArgument(f"{address!r} has a port that is no number up to 65535.") from None
    return address.rstrip("/")
