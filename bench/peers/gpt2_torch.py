# SPDX-License-Identifier: Apache-2.0
"""A peer of the compute benchmark: GPT-2 training steps in PyTorch, fp32, AdamW, no dropout.

The model computes what GPT2LMHeadModel computes. Prints a line for each step: seconds and loss.
"""
import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.proj = nn.Linear(4 * width, width)

    def attention(self, x, mask):
        b, t, c = x.shape
        q, k, v = self.c_attn(x).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
        probabilities = F.softmax(scores + mask, dim=-1)
        return self.c_proj((probabilities @ v).transpose(1, 2).reshape(b, t, c))

    def forward(self, x, mask):
        x = x + self.attention(self.ln_1(x), mask)
        h = self.fc(self.ln_2(x))
        return x + self.proj(F.gelu(h, approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, width, heads, vocab, positions):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(positions, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        t = tokens.shape[1]
        mask = torch.full((t, t), float("-inf")).triu(1)
        x = self.wte(tokens) + self.wpe.weight[:t]
        for block in self.h:
            x = block(x, mask)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    for name, default in (
        ("layers", 12),
        ("width", 768),
        ("heads", 12),
        ("vocab", 50257),
        ("positions", 1024),
        ("batch", 4),
        ("seq", 256),
        ("steps", 8),
        ("threads", 2),
    ):
        parser.add_argument("--" + name, type=int, default=default)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    model = GPT2(a.layers, a.width, a.heads, a.vocab, a.positions)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=1e-4,
        betas=(0.9, 0.95),
        foreach=True,
    )
    tokens = torch.randint(0, a.vocab, (a.batch, a.seq + 1))
    for _ in range(a.steps):
        start = time.monotonic()
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        print("%.6f %.6f" % (time.monotonic() - start, value), flush=True)


if __name__ == "__main__":
    main()
