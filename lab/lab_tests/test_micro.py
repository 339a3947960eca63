"""Every measurement of `locore_lab.micro` can be imported: what it measures moves, and it is run rarely."""

import importlib
import os
import pkgutil
from unittest import mock

import pytest
from locore_lab import micro

MODULES = [module.name for module in pkgutil.iter_modules(micro.__path__)]
NEEDS = {"mask_peers", "mask_engines", "masks", "engines"}  # neighbours or services that are not installed everywhere


@pytest.mark.parametrize("name", MODULES)
def test_it_can_be_imported(name):
    try:
        with mock.patch.dict(os.environ):  # some set what they are measured under
            importlib.import_module(f"locore_lab.micro.{name}")
    except ModuleNotFoundError as error:
        if name not in NEEDS or (error.name or "").split(".")[0] in ("locore", "locore_lab"):
            raise
