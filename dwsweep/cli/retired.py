"""Commands and options that this version removed, each with what to use instead."""

from __future__ import annotations

# by "command" or "command --option"
INSTEAD = {
    "fit --baseline": "`--along heads` and `--along depth` list each shape's loss above the best with its interval",
    "fit --margin": "`--along heads` and `--along depth` list each shape's loss above the best with its interval",
    "prepare --inspect": "`dwsweep prepare` prints the folder of the store, whose manifest.json has its counts",
    "sample": "`dwsweep export` writes a model that transformers generates text with",
    "eval": "`dwsweep export` writes a model that `lm_eval --model hf` scores",
    "bench --verify": "`make test-device` in a clone checks this host's devices",
    "bench --devices": "`--target H200:4` or `--target TPU-v5e:2x4` compiles for several devices",
    "theory --check": "`make test` measures the ranks of small networks against the bounds",
    "report --card": "results.csv and fit/guideline.md, as `dwsweep run` and `fit` write them, make a data set",
    "report --license": "state the licence where you publish results.csv",
    "guide --rule": "`dwsweep guide --params N1 --params N2` prints the best shapes to compare a rule with",
    "guide --compare": "run `dwsweep guide --fit F` and `dwsweep guide --law levine2020`",
    "design --write": "`--out FILE` names the file of the spec that `--hours` writes",
    "guide --pipeline-parallel": "the table lists depths to choose from, each with its costs",
    "guide --export maxtext": "`--export hf` prints the same shape for transformers",
    "guide --export olmo": "`--export hf` prints the same shape for transformers",
}


def line(command: str, option: str = "") -> str:
    """Line that refuses a command or an option that was removed; empty for any other."""
    instead = INSTEAD.get(f"{command} {option}".strip())
    return f"{option or command}: removed in this version; {instead}" if instead else ""
