"""Each scientific warning appears where it should, with its reason, and not where it should not."""

from __future__ import annotations

import re
from typing import Any

import pytest
from spec_tools import spec_of

from dwsweep.plan import DataFacts, build

QUIET: dict[str, Any] = {
    "name": "quiet",
    "grid": {
        "depths": [6, 12, 18, 24],
        "budgets": {"from": 3e5, "to": 4e8, "count": 16},
        "width_multiple": 8,
        "max_mismatch": 0.2,
        "heads": {"count": 2, "size": 64},
    },
    "model": {"tied_embeddings": True},
    "data": {"vocab_size": 256},
    "train": {"seq_len": 32, "steps": 1000},
}


def warnings(**sections: dict) -> str:
    return "\n".join(build(spec_of(QUIET, **sections)).warnings)


def test_a_sound_plan_warns_of_width_only() -> None:
    assert "embeddings above 10% of all parameters" in warnings(data={"vocab_size": 50_000})
    text = warnings()
    assert "d_x above" in text and "embeddings" not in text
    assert "learning rate" not in text and "transition" not in text and "seed" not in text and "head size" not in text


@pytest.mark.parametrize(
    ("sections", "wanted"),
    [
        (
            {"model": {"parametrization": "standard"}},
            "does not carry the learning rate over depth, and the grid has one learning rate:",
        ),
        (
            {"model": {"parametrization": "mup"}, "grid": {"learning_rates": [1e-3, 2e-3]}},
            "the grid has 2 learning rates",
        ),
        (
            {"model": {"parametrization": "standard"}, "grid": {"learning_rates": [1e-3, 2e-3, 4e-3]}},
            "3 learning rates per shape are searched",
        ),
        ({"train": {"steps": None, "tokens_per_param": 20}}, "tokens grow with the size"),
        ({"train": {"warmup_steps": 1000}}, "never reaches its peak"),
        (
            {"train": {"warmup_steps": 900, "schedule": "wsd"}},
            "reaches into the cool-down of the shortest run, which is its last 200 of 1,000 steps",
        ),
        ({"grid": {"budgets": [3e5, 1e6]}}, "outside the sizes that both depths share: 6/12 at N = 3.34M, 12/18"),
        ({"grid": {"budgets": [3e5, 1e7, 4e8]}}, "few widths around the published transition: 6/12 at N = 3.34M (0"),
        ({"grid": {"depths": [6, 12]}}, "2 depths give 1 pair; a width law needs at least three"),
        ({"grid": {"depths": [6]}}, "one depth (6)"),
        ({"grid": {"seeds": 1}}, "one seed"),
        ({"grid": {"seeds": [4]}}, "one seed"),
        ({}, "d_x above the vocabulary of 256"),
        ({"model": {"embedding_rank": 16}}, "d_x above model.embedding_rank 16"),
        ({"model": {"embedding_rank": 200}}, "no less than min(d_x, V)"),
        ({"model": {"embedding_rank": 300}}, "d_x above the vocabulary of 256"),
        ({"train": {"seq_len": 65}}, "head size below the window of 65"),
        ({"grid": {"width_multiple": 64, "max_mismatch": 0.05}}, "further than max_mismatch 5%"),
        ({"train": {"seq_len": 2048}, "grid": {"heads": {"count": 2}}}, "equal N is not equal FLOPs"),
    ],
)
def test_each_warning(sections: dict, wanted: str) -> None:
    assert wanted in warnings(**sections)


def test_more_than_one_epoch() -> None:
    tokens = 1000 * 16 * 32
    assert "epochs" not in warnings()
    assert "2.0 epochs" in _with_tokens(tokens // 2)
    assert "epochs" not in _with_tokens(tokens)


@pytest.mark.parametrize(
    ("held_out", "caution", "eval_tokens", "wanted"),
    [
        (100, None, None, ""),
        (100, None, 3000, ""),
        (100, None, 2999, "train.eval_tokens 2,999: evaluates about 29 held-out documents; .* 3,000 tokens"),
        (3, "three held out", 50, "three held out"),
    ],
)
def test_too_little_held_out(held_out: int, caution: str | None, eval_tokens: int | None, wanted: str) -> None:
    facts = DataFacts("a" * 64, 10**9, 100 * held_out, held_out, caution)
    found = build(spec_of(QUIET, train={"eval_tokens": eval_tokens}), data=facts).warnings
    lines = [line for line in found if "held" in line]
    assert len(lines) == bool(wanted) and all(re.search(wanted, line) for line in lines)


def _with_tokens(n_train_tokens: int) -> str:
    return "\n".join(build(spec_of(QUIET), data=DataFacts("a" * 64, n_train_tokens, 1000)).warnings)
