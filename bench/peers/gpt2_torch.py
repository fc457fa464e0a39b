# SPDX-License-Identifier: Apache-2.0
"""A peer of the compute benchmarks: GPT-2 training steps in PyTorch, AdamW, no dropout.

The model computes what GPT2LMHeadModel computes. Prints a line for each step, once it has read the
loss: seconds, from its batch on, and the loss. Batches are windows of --data, one after another, a
file in llm.c's .bin format, or one of random tokens without it. With --turns a line on standard
input asks for the next --steps steps, until there are no more; after them it gives back the memory
that only steps need, and says so by an empty line. Ends with 3 where the device's memory is too
small.
"""
import argparse
import contextlib
import itertools
import re
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

BIN_HEADER_BYTES = 1024  # then 16-bit tokens
DOES_NOT_FIT = 3


class Block(nn.Module):
    def __init__(self, width, heads, fused):
        super().__init__()
        self.heads = heads
        self.fused = fused
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
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
            mixed = F.softmax(scores + mask, dim=-1) @ v
        return self.c_proj(mixed.transpose(1, 2).reshape(b, t, c))

    def forward(self, x, mask):
        x = x + self.attention(self.ln_1(x), mask)
        h = self.fc(self.ln_2(x))
        return x + self.proj(F.gelu(h, approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, width, heads, vocab, positions, fused):
        super().__init__()
        self.fused = fused
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(positions, width)
        self.h = nn.ModuleList(Block(width, heads, fused) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        t = tokens.shape[1]
        mask = None
        if not self.fused:
            mask = torch.full((t, t), float("-inf"), device=tokens.device).triu(1)
        x = self.wte(tokens) + self.wpe.weight[:t]
        for block in self.h:
            x = block(x, mask)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def parse():
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
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--attention", choices=("plain", "fused"), default="plain")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--data")
    parser.add_argument("--version", action="store_true", help="and the device's, and its name")
    return parser.parse_args()


def tell_version(device):
    """Fails where PyTorch cannot use the device."""
    words = "PyTorch " + torch.__version__
    if device == "cuda":
        words += ", CUDA %s on %s" % (torch.version.cuda, torch.cuda.get_device_name())
    print(words)


def batches(a):
    """Tokens and targets of step after step, on the device."""
    if a.data is None:
        tokens = torch.randint(0, a.vocab, (a.batch, a.seq + 1)).to(a.device)
        while True:
            yield tokens[:, :-1], tokens[:, 1:]
    with open(a.data, "rb") as file:
        words = torch.frombuffer(bytearray(file.read()[BIN_HEADER_BYTES:]), dtype=torch.int16)
    window = a.batch * a.seq
    for at in itertools.cycle(range(0, len(words) - window, window)):
        pair = [words[first:first + window].to(torch.int64).bitwise_and(0xFFFF).view(a.batch, a.seq)
                for first in (at, at + 1)]
        if a.device == "cuda":
            pair = [half.pin_memory().to(a.device, non_blocking=True) for half in pair]
        yield pair


def make_optimizer(model, device):
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=1e-4,
        betas=(0.9, 0.95),
        **({"fused": True} if device == "cuda" else {"foreach": True}),
    )


def run_steps(a, model, optimizer, source):
    for _ in range(a.steps):
        cast = contextlib.nullcontext()
        if a.dtype == "bf16":
            cast = torch.autocast(a.device, dtype=torch.bfloat16)
        start = time.monotonic()
        tokens, targets = next(source)
        with cast:
            loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()  # waits for all of the step
        print("%.6f %.6f" % (time.monotonic() - start, value), flush=True)


def train(a):
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    # fp32 means fp32: no TF32, as memrun computes.
    torch.set_float32_matmul_precision("highest")
    fused = a.attention == "fused"
    model = GPT2(a.layers, a.width, a.heads, a.vocab, a.positions, fused).to(a.device)
    optimizer = make_optimizer(model, a.device)
    source = batches(a)
    if a.compile:
        model = torch.compile(model)
    if not a.turns:
        run_steps(a, model, optimizer, source)
    for _ in sys.stdin if a.turns else ():
        run_steps(a, model, optimizer, source)
        if a.device == "cuda":
            torch.cuda.empty_cache()
        print(flush=True)


def main():
    a = parse()
    if a.version:
        tell_version(a.device)
        return
    try:
        train(a)
    except RuntimeError as failed:  # PyTorch's own, or a library's that found no room
        if not re.search("out of memory|ALLOC_FAILED", str(failed)):
            raise
        print("gpt2_torch.py: %s" % str(failed).split(". ", maxsplit=1)[0], file=sys.stderr)
        sys.exit(DOES_NOT_FIT)


if __name__ == "__main__":
    main()
