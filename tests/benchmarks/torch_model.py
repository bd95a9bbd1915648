"""The same decoder-only transformer in PyTorch, as one would write it there, eager or compiled by ``torch.compile``.

One product for q, k and v, ``scaled_dot_product_attention(is_causal=True)``, ``gelu`` with tanh, ``layer_norm``,
``cross_entropy``, AdamW from ``torch.optim`` (fused or foreach), ``clip_grad_norm_``: nothing here is slower than it
has to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from dwsweep.shapes import Shape
from dwsweep.spec import TrainSpec


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        D = shape.width
        self.attention_norm, self.mlp_norm = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv = nn.Linear(D, 3 * shape.heads * shape.head_size)
        self.out = nn.Linear(shape.heads * shape.head_size, D)
        self.up, self.down = nn.Linear(D, shape.mlp_hidden), nn.Linear(shape.mlp_hidden, D)
        self.heads = shape.heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, _ = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(B, T, -1))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Transformer(nn.Module):
    """Windows (B, T + 1) of token ids → mean next-token loss in nats."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab_size, shape.width)
        self.positions = nn.Parameter(torch.empty(shape.seq_len, shape.width))
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.depth))
        self.final_norm = nn.LayerNorm(shape.width)
        self.unembedding = nn.Linear(shape.width, shape.vocab_size, bias=False)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        tokens, targets = windows[:, :-1], windows[:, 1:]
        x = self.embedding(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.unembedding(self.final_norm(x)).flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def take(self, params: Mapping[str, Any]) -> None:
        """Copy the parameters of a ``dwsweep`` model (a dict of arrays without a replica axis)."""
        self.embedding.weight.copy_(tensor(params["embedding"]))
        self.positions.copy_(tensor(params["positions"]))
        self.unembedding.weight.copy_(tensor(params["unembedding"]))
        _norm(self.final_norm, params["final_norm"])
        stacked = params["blocks"]
        for i, block in enumerate(self.blocks):
            for name in ("attention_norm", "mlp_norm"):
                _norm(getattr(block, name), {key: leaf[i] for key, leaf in stacked[name].items()})
            for part, names in (("attention", ("qkv", "out")), ("mlp", ("up", "down"))):
                for name in names:
                    leaves = stacked[part][name]
                    getattr(block, name).weight.copy_(tensor(leaves["kernel"][i]).T)
                    getattr(block, name).bias.copy_(tensor(leaves["bias"][i]))


def _norm(module: nn.LayerNorm, leaves: Mapping[str, Any]) -> None:
    module.weight.copy_(tensor(leaves["gain"]))
    module.bias.copy_(tensor(leaves["bias"]))


def tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


class Trainer:
    """One replica: model, optimizer and the training step."""

    def __init__(
        self, shape: Shape, train: TrainSpec, learning_rate: float, fused: bool, compiled: bool = False
    ) -> None:
        self.model = Transformer(shape)
        self.loss = torch.compile(self.model, dynamic=False) if compiled else self.model
        self.train, self.seq_len, self.learning_rate = train, shape.seq_len, learning_rate
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=learning_rate,
            betas=train.betas,
            eps=train.epsilon,
            weight_decay=train.weight_decay,
            fused=fused or None,
            foreach=None if fused else True,
        )
        self.offsets = torch.arange(shape.seq_len + 1)

    def step(self, tokens: torch.Tensor, indices_B: torch.Tensor, rate: float) -> torch.Tensor:
        """One step on the windows ``indices_B``; ``rate`` is the schedule's multiplier. The loss before the step."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * rate
        windows = tokens[indices_B[:, None] * self.seq_len + self.offsets]
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(windows)
        loss.backward()
        assert self.train.grad_clip is not None
        nn.utils.clip_grad_norm_(self.parameters, self.train.grad_clip, foreach=True)
        self.optimizer.step()
        return loss.detach()
