#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the data of the test of a full training step: a small GPT-2 in PyTorch.

    ./make.py DIRECTORY

The forward pass is written here from GPT-2's definition with PyTorch's own ops in double
precision, the gradients are PyTorch's, clipping is torch.nn.utils.clip_grad_norm_ and the update
torch.optim.AdamW. Only seeded initial weights are drawn, as fp32. The files:

    init.safetensors     initial weights, Hugging Face's names
    grad.safetensors     gradients of the first step, before clipping
    step1.safetensors    weights after one step
    step3.safetensors    weights after three
    expected.txt         for each step: the loss and the norm of the gradients, then all tokens

Made with PyTorch 1.13 on the CPU.
"""
import json
import struct
import sys

import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, VOCAB, SEQ, BATCH, STEPS = 2, 24, 3, 61, 16, 2, 3
# The gradient of the keys' bias is 0 but for rounding, because a softmax does not see a shift. eps
# is large enough that AdamW does not blow that rounding up to a step.
LR, BETAS, EPS, DECAY, CLIP = 1e-3, (0.9, 0.95), 1e-5, 0.1, 0.5


def draw_weights(generator):
    """Larger than GPT-2's 0.02, and nothing at 0 or 1, so that every term of every rule counts."""
    def normal(*shape, mean=0.0, deviation=0.1):
        values = torch.randn(*shape, generator=generator, dtype=torch.float64) * deviation + mean
        return values.float().double()

    weights = {"transformer.wte.weight": normal(VOCAB, WIDTH),
               "transformer.wpe.weight": normal(SEQ, WIDTH)}

    def add(name, rows, columns):
        weights[name + ".weight"] = normal(rows, columns)
        weights[name + ".bias"] = normal(columns)

    def add_norm(name):
        weights[name + ".weight"] = normal(WIDTH, mean=1.0)
        weights[name + ".bias"] = normal(WIDTH)

    for layer in range(LAYERS):
        prefix = f"transformer.h.{layer}."
        add_norm(prefix + "ln_1")
        add(prefix + "attn.c_attn", WIDTH, 3 * WIDTH)
        add(prefix + "attn.c_proj", WIDTH, WIDTH)
        add_norm(prefix + "ln_2")
        add(prefix + "mlp.c_fc", WIDTH, 4 * WIDTH)
        add(prefix + "mlp.c_proj", 4 * WIDTH, WIDTH)
    add_norm("transformer.ln_f")
    return weights


def forward(weights, tokens, targets):
    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), weights[name + ".weight"], weights[name + ".bias"], 1e-5)

    def linear(x, name):
        return x @ weights[name + ".weight"] + weights[name + ".bias"]

    def gelu(x):
        return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x ** 3)))

    def heads(x):
        return x.view(BATCH, SEQ, HEADS, WIDTH // HEADS).transpose(1, 2)

    x = weights["transformer.wte.weight"][tokens] + weights["transformer.wpe.weight"][:SEQ]
    mask = torch.ones(SEQ, SEQ, dtype=torch.bool).tril()
    for layer in range(LAYERS):
        prefix = f"transformer.h.{layer}."
        q, k, v = linear(norm(x, prefix + "ln_1"), prefix + "attn.c_attn").split(WIDTH, dim=2)
        scores = heads(q) @ heads(k).transpose(2, 3) / (WIDTH // HEADS) ** 0.5
        scores = scores.masked_fill(~mask, float("-inf"))
        mixed = (scores.softmax(dim=3) @ heads(v)).transpose(1, 2).reshape(BATCH, SEQ, WIDTH)
        x = x + linear(mixed, prefix + "attn.c_proj")
        hidden = gelu(linear(norm(x, prefix + "ln_2"), prefix + "mlp.c_fc"))
        x = x + linear(hidden, prefix + "mlp.c_proj")
    logits = norm(x, "transformer.ln_f") @ weights["transformer.wte.weight"].t()
    return F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, tensor in tensors.items():
        size = 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.detach().float().contiguous().numpy().tobytes())


def main(directory):
    generator = torch.Generator().manual_seed(20240520)
    weights = {name: torch.nn.Parameter(value)
               for name, value in draw_weights(generator).items()}
    stream = torch.randint(VOCAB, (STEPS, BATCH * SEQ + 1), generator=generator)
    write_safetensors(f"{directory}/init.safetensors", weights)
    optimizer = torch.optim.AdamW(
        [{"params": [w for w in weights.values() if w.dim() >= 2], "weight_decay": DECAY},
         {"params": [w for w in weights.values() if w.dim() < 2], "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPS)
    lines = []
    for step in range(STEPS):
        tokens = stream[step, :-1].view(BATCH, SEQ)
        targets = stream[step, 1:].view(BATCH, SEQ)
        optimizer.zero_grad()
        loss = forward(weights, tokens, targets)
        loss.backward()
        if step == 0:
            write_safetensors(f"{directory}/grad.safetensors",
                              {name: w.grad for name, w in weights.items()})
        norm = torch.nn.utils.clip_grad_norm_(list(weights.values()), CLIP)
        optimizer.step()
        lines.append(f"{loss.item():.17g} {norm.item():.17g}")
        if step in (0, STEPS - 1):
            write_safetensors(f"{directory}/step{step + 1}.safetensors", weights)
    for step in range(STEPS):
        lines.append(" ".join(str(token) for token in stream[step].tolist()))
    with open(f"{directory}/expected.txt", "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
