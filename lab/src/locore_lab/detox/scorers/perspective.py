"""Toxicity from the Perspective API, the scorer of the paper (extra `detox`).

The service closes on 31 December 2026, and gives out no new keys; afterwards only the scores in a cache remain. Its models were
replaced without notice over the years, so scores of different years are not comparable.

Request and reply: https://github.com/conversationai/perspectiveapi/blob/main/2-api/methods.md; errors:
https://github.com/conversationai/perspectiveapi/blob/main/2-api/limits.md. An error is
{"error": {"code", "message", "status", "details": [...]}}; a detail has "errorType" if the service itself objects to the text
or the request, and "reason" if Google's gate in front of it objects to the key or the quota.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import gmtime, strftime
from typing import TYPE_CHECKING, Any

from locore.io import Journal
from locore.kernel.errors import InvalidArgument, MissingExtra
from locore_lab.detox.scorers import Scores, ServiceError

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

KEY_VARIABLE = "PERSPECTIVE_API_KEY"
ADDRESS = "https://commentanalyzer.googleapis.com/v1alpha1/comments:analyze"
ATTRIBUTE, LANGUAGE = "TOXICITY", "en"
CLOSING = "The service closes on 31 December 2026; LocalScorer needs no service."
# What the service says of a text that it will never score; every other error is about the request, the key or the service.
REFUSALS = frozenset({"LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE", "LANGUAGE_DETECTION_FAILED", "COMMENT_EMPTY", "COMMENT_TOO_LONG"})
NOT_UNICODE = "NOT_UNICODE"  # our own refusal: a lone surrogate has no UTF-8, so the text cannot be sent


class _Key(str):
    """A key that a traceback with local variables does not show."""

    def __repr__(self) -> str:
        return "'***'"


class PerspectiveScorer:
    """TOXICITY of English text by Google's Comment Analyzer.

    The key comes from the environment (`PERSPECTIVE_API_KEY`) and goes into a header, never into an address or a message.
    Texts are sent with `doNotStore`. One request at a time.

    Attributes:
        refusals: how many texts `score` gave None for, by the service's reason.
        requests: how many texts the service was asked about; the rest came from the cache.
    """

    name = "perspective"

    def __init__(
        self,
        cache: Path,
        queries_per_second: float = 1.0,
        retries: int = 8,
        timeout: float = 30.0,
        backoff: float = 1.0,
        address: str = ADDRESS,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            cache: a journal of all answers by hashes of the texts, made if missing; a stopped run goes on from it.
            queries_per_second: the quota of the key; 1 unless Google granted more.
            retries: after 429, 5xx, timeouts and broken connections, for each text.
            timeout: seconds to wait for a connection, and for an answer.
            backoff: seconds before the first retry, doubled before each further one (at most 64 times as long) and lengthened
                by up to as much again at random; a `Retry-After` of the service goes before.
            address: another endpoint that speaks the same JSON.
        """
        if not (0 < queries_per_second < float("inf") and retries >= 0 and timeout > 0 and backoff > 0):
            raise InvalidArgument("queries_per_second, timeout and backoff must be positive, retries at least 0.")
        self._key = _Key(os.environ.get(KEY_VARIABLE, "").strip())
        if not (self._key.isascii() and self._key.isprintable() and self._key):
            raise InvalidArgument(f"The Perspective API needs a key: set the environment variable {KEY_VARIABLE}. {CLOSING}")
        self.version = f"v1alpha1 {ATTRIBUTE} {LANGUAGE}"
        self.refusals: Counter[str] = Counter()
        self.requests = 0
        self._address = address
        self._pause = 1 / queries_per_second
        self._next = 0.0
        self._http = _client(retries, timeout, backoff)
        self._cache = Journal(cache, {"address": address, "version": self.version})

    def score(self, texts: Sequence[str]) -> Scores:
        """Toxicity of each text, from the cache where it is known, else from the service.

        Returns:
            Numbers in [0, 1]; None where the service refuses the text (empty, too long, language): see `refusals`.
        """
        scores: Scores = []
        for text in texts:
            key = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),)
            if key not in self._cache:
                score, refusal = self._ask(text)
                # With the time (UTC), because services change their models unannounced.
                asked = strftime("%Y-%m-%dT%H:%M:%SZ", gmtime())
                self._cache.append(key, {"score": score, "refusal": refusal, "asked": asked})
            answer = self._cache[key]
            if answer["refusal"] is not None:
                self.refusals[answer["refusal"]] += 1
            scores.append(answer["score"])
        return scores

    def close(self) -> None:
        """Give connections back."""
        self._http.clear()

    def _ask(self, text: str) -> tuple[float | None, str | None]:
        """A score, or why there is none."""
        try:
            text.encode()
        except UnicodeEncodeError:
            return None, NOT_UNICODE
        time.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self._pause
        request = {
            "comment": {"text": text, "type": "PLAIN_TEXT"},
            "languages": [LANGUAGE],
            "requestedAttributes": {ATTRIBUTE: {}},
            "doNotStore": True,
        }
        reply = self._send(json.dumps(request).encode())
        self.requests += 1
        if reply.status == 200:
            return _score_of(reply.data), None
        refusal = min(_error_of(reply.data)[1] & REFUSALS, default=None) if reply.status == 400 else None
        if refusal is None:
            raise ServiceError(self._explained(reply))
        return None, refusal

    def _send(self, body: bytes) -> BaseHTTPResponse:
        headers = {"Content-Type": "application/json", "X-Goog-Api-Key": self._key}
        errors = importlib.import_module("urllib3.exceptions")
        try:
            reply: BaseHTTPResponse = self._http.request("POST", self._address, body=body, headers=headers)
        except errors.MaxRetryError as error:
            what = type(error.reason).__name__
        except errors.HTTPError as error:
            what = type(error).__name__
        else:
            return reply
        # Not chained: the causes carry the request, and with it the key.
        raise ServiceError(f"the Perspective API is out of reach ({what}). {CLOSING}")

    def _explained(self, reply: BaseHTTPResponse) -> str:
        """What went wrong and what to do."""
        message, reasons = _error_of(reply.data)
        said = f"{message} {' '.join(sorted(reasons))}".strip().replace(self._key, "***")
        what = f"the Perspective API answered {reply.status}" + (f": {said}" if said else "") + ". "
        if reply.status in (401, 403) or "API_KEY_INVALID" in reasons:
            return what + f"Check {KEY_VARIABLE}, and that the API is enabled for the key's project. {CLOSING}"
        if reply.status == 429:
            return what + "The quota is used up: lower queries_per_second, or go on later; known scores stay in the cache."
        if reply.status >= 500:
            return what + f"The service is in trouble: go on later; known scores stay in the cache. {CLOSING}"
        return what + f"The request was not accepted. {CLOSING}"


def _client(retries: int, timeout: float, backoff: float) -> Any:
    try:
        importlib.import_module("urllib3")
        from locore.patience import patient_pool
    except ImportError:
        raise MissingExtra("The Perspective API needs urllib3: pip install './lab[detox]'") from None
    return patient_pool(retries, timeout, backoff)


def _score_of(body: bytes) -> float:
    """The summary score in [0, 1] of a reply of status 200."""
    try:
        summary = json.loads(body)["attributeScores"][ATTRIBUTE]["summaryScore"]
        value, kind = summary["value"], summary.get("type", "PROBABILITY")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ServiceError(
            f"the Perspective API answered without attributeScores.{ATTRIBUTE}.summaryScore.value; "
            "its format may have changed, or something between you and it answers in its place."
        ) from None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1 or kind != "PROBABILITY":
        raise ServiceError(f"the Perspective API answered {ATTRIBUTE} = {value!r} ({kind}); expected a probability.")
    return float(value)


def _error_of(body: bytes) -> tuple[str, frozenset[str]]:
    """What can be understood of the body of an error, its message and its reasons; never fails."""
    try:
        error = json.loads(body)["error"]
        details: Any = error.get("details", [])
        found = [detail.get(name) for detail in details for name in ("errorType", "reason")]
        return str(error.get("message", "")), frozenset(reason for reason in found if isinstance(reason, str))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "", frozenset()
