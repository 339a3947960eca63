"""The JSON of the Comment Analyzer ("Perspective") API, v1alpha1.

Request and reply: https://github.com/conversationai/perspectiveapi/blob/main/2-api/methods.md; errors:
https://github.com/conversationai/perspectiveapi/blob/main/2-api/limits.md. An error is
{"error": {"code", "message", "status", "details": [...]}}; a detail has "errorType" if the service itself objects to the text
or the request, and "reason" if Google's gate in front of it objects to the key or the quota.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from locore_lab.detox.scorers.protocol import ServiceError

# What the service says of a text that it will never score; every other error is about the request, the key or the service.
REFUSALS = frozenset({"LANGUAGE_NOT_SUPPORTED_BY_ATTRIBUTE", "LANGUAGE_DETECTION_FAILED", "COMMENT_EMPTY", "COMMENT_TOO_LONG"})


@dataclass(frozen=True)
class ErrorReply:
    """An error as the service tells it.

    Attributes:
        message: for people; "" if there was none.
        reasons: what programs should look at.
    """

    message: str = ""
    reasons: frozenset[str] = field(default_factory=frozenset)

    @property
    def refusal(self) -> str | None:
        """Why this text has no score; None if the error is not about the text."""
        return min(self.reasons & REFUSALS, default=None)


def request_of(text: str, attribute: str, language: str) -> bytes:
    """The JSON of one request; the service is asked not to keep the text."""
    request = {
        "comment": {"text": text, "type": "PLAIN_TEXT"},
        "languages": [language],
        "requestedAttributes": {attribute: {}},
        "doNotStore": True,
    }
    return json.dumps(request).encode()


def score_of(body: bytes, attribute: str) -> float:
    """The summary score in [0, 1] of a reply of status 200."""
    try:
        summary = json.loads(body)["attributeScores"][attribute]["summaryScore"]
        value, kind = summary["value"], summary.get("type", "PROBABILITY")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ServiceError(
            f"the Perspective API answered without attributeScores.{attribute}.summaryScore.value; "
            "its format may have changed, or something between you and it answers in its place."
        ) from None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1 or kind != "PROBABILITY":
        raise ServiceError(f"the Perspective API answered {attribute} = {value!r} ({kind}); expected a probability.")
    return float(value)


def error_of(body: bytes) -> ErrorReply:
    """What can be understood of the body of an error; never fails."""
    try:
        error = json.loads(body)["error"]
        message = str(error.get("message", ""))
        details: Any = error.get("details", [])
        found = [detail.get(name) for detail in details for name in ("errorType", "reason")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ErrorReply()
    return ErrorReply(message, frozenset(reason for reason in found if isinstance(reason, str)))
