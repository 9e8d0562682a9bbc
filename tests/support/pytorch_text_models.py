"""GPT-2 and LLaMA as PyTorch modules whose parameters bear strata's names: written from the papers, so that a step of
strata's models has something to be compared with that shares no line with them."""

import torch
from torch import nn
from torch.nn import functional

# By preset of strata: the module and what it is made with.
PRESETS = {
    "gpt-nano": lambda: Gpt(2, hidden=64, heads=4, vocabulary=256, sequence_length=64),
    "gpt2-small": lambda: Gpt(12, hidden=768, heads=12, vocabulary=50257, sequence_length=1024),
    "llama-nano": lambda: Llama(
        2, hidden=64, heads=4, kv_heads=2, ffn_hidden=160, vocabulary=256, sequence_length=64, has_tied_head=False
    ),
    "smollm-135m": lambda: Llama(
        30, hidden=576, heads=9, kv_heads=3, ffn_hidden=1536, vocabulary=49152, sequence_length=2048, has_tied_head=True
    ),
}
DEVIATION = 0.02  # of initial weights
THETA = 10000.0  # of rotary positions


class Table(nn.Module):
    """What tokens and, where there are any, positions look up. [batch, sequence] -> [batch, sequence, hidden]"""

    def __init__(self, vocabulary, hidden, positions=0):
        super().__init__()
        self.table = nn.Parameter(DEVIATION * torch.randn(vocabulary, hidden))
        if positions:
            self.positions = nn.Parameter(DEVIATION * torch.randn(positions, hidden))
        self.has_positions = positions > 0

    def forward(self, tokens):
        x = functional.embedding(tokens, self.table)
        return x + self.positions if self.has_positions else x


class GptAttention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x):
        batch, tokens, hidden = x.shape
        parts = self.qkv(self.norm(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, tokens, hidden))


class GptFeedForward(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return self.fc2(functional.gelu(self.fc1(self.norm(x)), approximate="tanh"))


class LlamaAttention(nn.Module):
    """Groups of queries share a key and a value; queries and keys are turned by their position."""

    def __init__(self, hidden, heads, kv_heads, sequence_length):
        super().__init__()
        self.heads = (heads, kv_heads, kv_heads)
        head_dim = hidden // heads
        self.norm = nn.RMSNorm(hidden, eps=1e-6)
        self.qkv = nn.Linear(hidden, sum(self.heads) * head_dim, bias=False)
        self.proj = nn.Linear(hidden, hidden, bias=False)
        frequencies = THETA ** (-torch.arange(0, head_dim, 2) / head_dim)
        angles = torch.outer(torch.arange(sequence_length), frequencies).repeat(1, 2)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def turned(self, x):
        """The first half of a head's elements and the second are the pairs."""
        first, second = x.chunk(2, dim=-1)
        return (x * self.cosine + torch.cat([-second, first], dim=-1) * self.sine).to(x.dtype)

    def forward(self, x):
        batch, tokens, hidden = x.shape
        heads = self.qkv(self.norm(x)).view(batch, tokens, sum(self.heads), -1).transpose(1, 2)
        q, k, v = heads.split(self.heads, dim=1)
        y = functional.scaled_dot_product_attention(
            self.turned(q), self.turned(k), v, is_causal=True, enable_gqa=self.heads[1] < self.heads[0]
        )
        return self.proj(y.transpose(1, 2).reshape(batch, tokens, hidden))


class SwiGlu(nn.Module):
    def __init__(self, hidden, ffn_hidden):
        super().__init__()
        self.norm = nn.RMSNorm(hidden, eps=1e-6)
        self.gate_up = nn.Linear(hidden, 2 * ffn_hidden, bias=False)
        self.down = nn.Linear(ffn_hidden, hidden, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(self.norm(x)).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, attention, feed_forward):
        super().__init__()
        self.attn, self.mlp = attention, feed_forward

    def forward(self, x):
        x = x + self.attn(x)
        return x + self.mlp(x)


class Decoder(nn.Module):
    """Embedding, blocks, norm and head. Tokens [batch, sequence] -> logits [batch, sequence, vocabulary]"""

    def __init__(self, embedding, blocks, final_norm, has_tied_head, sequence_length):
        super().__init__()
        self.embedding, self.block, self.final_norm = embedding, nn.Sequential(*blocks), final_norm
        self.vocabulary, hidden = embedding.table.shape
        self.sequence_length = sequence_length
        self.head = None if has_tied_head else nn.Linear(hidden, self.vocabulary, bias=False)

    def forward(self, tokens):
        x = self.final_norm(self.block(self.embedding(tokens)))
        return functional.linear(x, self.embedding.table if self.head is None else self.head.weight)


class Gpt(Decoder):
    def __init__(self, layers, hidden, heads, vocabulary, sequence_length):
        super().__init__(
            Table(vocabulary, hidden, positions=sequence_length),
            (Block(GptAttention(hidden, heads), GptFeedForward(hidden)) for _ in range(layers)),
            nn.LayerNorm(hidden),
            has_tied_head=True,
            sequence_length=sequence_length,
        )


class Llama(Decoder):
    def __init__(self, layers, hidden, heads, kv_heads, ffn_hidden, vocabulary, sequence_length, has_tied_head):
        blocks = (
            Block(LlamaAttention(hidden, heads, kv_heads, sequence_length), SwiGlu(hidden, ffn_hidden))
            for _ in range(layers)
        )
        super().__init__(
            Table(vocabulary, hidden), blocks, nn.RMSNorm(hidden, eps=1e-6), has_tied_head, sequence_length
        )
