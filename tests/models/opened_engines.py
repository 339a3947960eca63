"""Models behind a server of the tests, and answers that it may give."""

from __future__ import annotations

import json
from typing import Any

from locore.kernel.tokenizer import Tokenizer
from locore.models import load
from locore.models.engines.model import EngineModel

from . import zoo
from .engine_server import Reply, Service

ENDS = Tokenizer.integers(zoo.VOCAB, (2, 5))
QUICK = {"retries": 2, "backoff": 0.01, "timeout": 30}


def opened(service: Service, **options: Any) -> EngineModel:
    return load(f"{service.address}/v1", **{"tokenizer": ENDS, **QUICK, **options})


def sglang(service: Service, **options: Any) -> EngineModel:
    return load(f"sglang:{service.address}", **{"tokenizer": ENDS, **QUICK, **options})


def reply(status: int, body: Any, **headers: str) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, data
