"""A text to train on, and programs that are compiled once."""

from __future__ import annotations

from typing import Any

import pytest
from train_support import make_store

from dwsweep.data.token_store import Store
from dwsweep.train.choices import pack_seeds
from dwsweep.train.program import Blueprint

PROGRAMS: dict[str, Any] = {}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make_store(tmp_path_factory.mktemp("store"))


@pytest.fixture
def programs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal programs are traced and compiled once in a process, which is most of the time of a tiny pack: for tests of
    what is done with a program, none of how it comes about."""

    def remembered(name: str) -> Any:
        compiled = getattr(Blueprint, name)

        def again(blueprint: Blueprint, *arguments: Any) -> Any:
            pack, store = blueprint.pack, blueprint.store
            # seeds and rates are what a program is called with
            replicas = [pack_seeds(pack).index(replica.seed) for replica in pack.replicas]
            of_pack = (pack.shape, pack.model, pack.train, replicas, blueprint.choices)
            key = repr((name, arguments, of_pack, store.dtype, store.n_train_tokens))
            if key not in PROGRAMS:
                PROGRAMS[key] = compiled(blueprint, *arguments)
            return PROGRAMS[key]

        return again

    for name in ("compiled_init", "compiled_evaluate", "compiled_dispatch", "compiled_heads"):
        monkeypatch.setattr(Blueprint, name, remembered(name))
