#!/usr/bin/env python3
"""Training steps of bench_cuda's models in PyTorch, compiled, for the ratio on one machine.

bench_pytorch.py [--tiny]      lines of "name seconds s a step, peak GiB"; --tiny: small shapes, to try the script

Weights and AdamW's states are bf16 and the update is fused: PyTorch moves less memory for them than strata, which keeps
fp32 masters. Attention is scaled_dot_product_attention, VGG's images are channels-last.
"""

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

NUM_WARMUPS = 5
NUM_STEPS = 10


class Gpt(nn.Module):
    """GPT-2: learnt positions, LayerNorm before each part, GELU, the head tied to the embedding."""

    def __init__(self, layers, hidden, heads, vocabulary, sequence):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(sequence, hidden)
        self.blocks = nn.ModuleList(GptBlock(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class GptBlock(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        x = x + self.out(attention(*split_heads(self.qkv(self.norm1(x)), self.heads)))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Llama(nn.Module):
    """LLaMA: rotary positions, RMSNorm, SwiGLU, no biases, an untied head."""

    def __init__(self, layers, hidden, heads, ffn, vocabulary, sequence):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList(LlamaBlock(hidden, heads, ffn) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        dim = hidden // heads
        angles = torch.outer(torch.arange(sequence), 10000.0 ** (-torch.arange(0, dim, 2) / dim))
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class LlamaBlock(nn.Module):
    def __init__(self, hidden, heads, ffn):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = split_heads(self.qkv(self.norm1(x)), self.heads)
        x = x + self.out(attention(rotate(q, cos, sin), rotate(k, cos, sin), v))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class Vgg13(nn.Module):
    def __init__(self, widths=(64, 128, 256, 512, 512), size=224, classes=1000, classifier=4096):
        super().__init__()
        layers, channels = [], 3
        for width in widths:
            for _ in range(2):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        inputs = channels * (size // 32) ** 2
        self.classifier = nn.Sequential(
            nn.Linear(inputs, classifier),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(classifier, classifier),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(classifier, classes),
        )

    def forward(self, images, labels):
        return functional.cross_entropy(self.classifier(self.features(images).flatten(1)), labels)


def split_heads(qkv, heads):
    """[batch, sequence, 3 · hidden] → three of [batch, heads, sequence, head size]."""
    batch, sequence, width = qkv.shape
    return qkv.view(batch, sequence, 3, heads, width // (3 * heads)).permute(2, 0, 3, 1, 4)


def attention(q, k, v):
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).flatten(2)


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def report(name, model, inputs, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=device == "cuda")
    compiled = torch.compile(model)
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    seconds = []
    for _ in range(NUM_WARMUPS + NUM_STEPS):
        synchronize()
        begin = time.perf_counter()
        compiled(*inputs).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize()
        seconds.append(time.perf_counter() - begin)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else float("nan")
    print(f"{name} {statistics.median(seconds[NUM_WARMUPS:]):.5f} s a step, peak {peak:.1f} GiB", flush=True)


def tokens(batch, sequence, vocabulary):
    return [torch.randint(vocabulary, (batch, sequence)) for _ in range(2)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    tiny = parser.parse_args().tiny
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not tiny:
        raise SystemExit("no GPU")
    torch.manual_seed(1)
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name() if device == 'cuda' else 'cpu'}")
    if tiny:
        cases = [
            ("gpt2-small", lambda: Gpt(1, 32, 2, 64, 16), tokens(2, 16, 64)),
            ("llama-7b-8-layers", lambda: Llama(1, 32, 2, 48, 64, 16), tokens(2, 16, 64)),
            ("vgg13", lambda: Vgg13((4, 4, 4, 4, 4), 32, 8, 16), [torch.rand(2, 3, 32, 32), torch.randint(8, (2,))]),
        ]
    else:
        cases = [
            ("gpt2-small", lambda: Gpt(12, 768, 12, 50257, 1024), tokens(8, 1024, 50257)),
            ("llama-7b-8-layers", lambda: Llama(8, 4096, 32, 11008, 32000, 4096), tokens(1, 4096, 32000)),
            ("vgg13", Vgg13, [torch.rand(128, 3, 224, 224), torch.randint(1000, (128,))]),
        ]
    for name, make, (inputs, targets) in cases:
        model = make().to(device=device, dtype=torch.bfloat16)
        if inputs.is_floating_point():
            model = model.to(memory_format=torch.channels_last)
            inputs = inputs.to(torch.bfloat16).to(memory_format=torch.channels_last)
        report(name, model, [inputs.to(device), targets.to(device)], device)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()
