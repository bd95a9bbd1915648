"""A text to train on."""

from __future__ import annotations

import pytest
from train_support import make_store

from dwsweep.data.token_store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make_store(tmp_path_factory.mktemp("store"))
