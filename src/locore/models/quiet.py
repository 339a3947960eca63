"""`transformers` without its progress bars and warnings."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import huggingface_hub
import transformers

# Neither declares all that it documents, so their types are left open.
hub: Any = huggingface_hub.utils
logging: Any = transformers.utils.logging


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and warnings of `transformers`; all settings come back after."""
    verbosity, hub_verbosity = logging.get_verbosity(), hub.logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    hub_bars = not hub.are_progress_bars_disabled()
    logging.set_verbosity_error()
    hub.logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        hub.logging.set_verbosity(hub_verbosity)
        if bars:
            logging.enable_progress_bar()
        if hub_bars:
            hub.enable_progress_bars()
