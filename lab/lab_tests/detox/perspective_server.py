"""A local server that speaks the JSON of the Comment Analyzer API, faults included."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.http_service import served

Reply = tuple[int, dict[str, str], bytes]

ERROR = "type.googleapis.com/google.commentanalyzer.v1alpha1.Error"
INFO = "type.googleapis.com/google.rpc.ErrorInfo"


def scored(value: float) -> Reply:
    """A reply of status 200 as the service documents it."""
    score = {"value": value, "type": "PROBABILITY"}
    span = {"begin": 0, "end": 4, "score": score}
    body = {"attributeScores": {"TOXICITY": {"spanScores": [span], "summaryScore": score}}, "languages": ["en"]}
    return 200, {}, json.dumps(body).encode()


def failed(code: int, status: str, message: str, *details: dict, **headers: str) -> Reply:
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return code, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps({"error": error}).encode()


def too_many(**headers: str) -> Reply:
    metadata = {
        "quota_limit": "AnalyzeRequestsPerMinutePerProject",
        "quota_limit_value": "60",
        "service": "commentanalyzer.googleapis.com",
    }
    info = {"@type": INFO, "reason": "RATE_LIMIT_EXCEEDED", "domain": "googleapis.com", "metadata": metadata}
    message = "Quota exceeded for quota metric 'Analysis requests (AnalyzeComment)' and limit 'per minute'."
    return failed(429, "RESOURCE_EXHAUSTED", message, info, **headers)


def refused(kind: str, message: str, **more: object) -> Reply:
    return failed(400, "INVALID_ARGUMENT", message, {"@type": ERROR, "errorType": kind, **more})


WRONG_LANGUAGE = refused(
    "LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE",
    "Attribute TOXICITY does not support request languages: om",
    languageNotSupportedByAttributeError={"detectedLanguages": ["om"], "attribute": "TOXICITY"},
)
EMPTY = refused("COMMENT_EMPTY", "Comment must be non-empty.")
TOO_LONG = refused("COMMENT_TOO_LONG", "Comment text too long.")
INVALID_KEY = failed(
    400,
    "INVALID_ARGUMENT",
    "API key not valid. Please pass a valid API key.",
    {"@type": INFO, "reason": "API_KEY_INVALID", "domain": "googleapis.com"},
)
DISABLED = failed(
    403,
    "PERMISSION_DENIED",
    "Perspective Comment Analyzer API has not been used in project 1 before or it is disabled.",
    {"@type": INFO, "reason": "SERVICE_DISABLED", "domain": "googleapis.com"},
)
INTERNAL = failed(500, "INTERNAL", "Internal error encountered.")
CUT_SHORT = (200, {"Content-Length": "4000"}, scored(0.5)[2][:20])  # then the connection closes


@dataclass
class Service:
    """What the server will say, and what it was asked.

    Attributes:
        answer: reply to a text; None: no reply until the server stops.
        requests: JSON bodies, in order.
        headers, paths: of the same requests.
    """

    answer: Callable[[str], Reply | None] = field(default=lambda text: scored(0.25))
    requests: list[dict] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    address: str = ""
    stopping: threading.Event = field(default_factory=threading.Event)

    def say(self, *replies: Reply | None) -> None:
        """These replies, one after the other; the last one for ever."""
        left = list(replies)
        self.answer = lambda text: left.pop(0) if len(left) > 1 else left[0]

    @property
    def texts(self) -> list[str]:
        return [request["comment"]["text"] for request in self.requests]


@contextmanager
def running() -> Iterator[Service]:
    """A server on a free port of this machine."""
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.requests.append(request)
            service.headers.append(dict(self.headers))
            service.paths.append(self.path)
            reply = service.answer(request["comment"]["text"])
            if reply is None:
                service.stopping.wait()
                return
            status, headers, body = reply
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    with served(Handler, service.stopping) as root:
        service.address = f"{root}/v1alpha1/comments:analyze"
        yield service
