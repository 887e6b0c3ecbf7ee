"""Two training programs in plain PyTorch, for scripts/torch_check.py: GPT-2 medium, and LoRA on a 1.1 B Llama with activation
checkpointing. Weights and data are random, from fixed seeds; lengths vary by step."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    """Causal self-attention; with `rank`, low-rank additions to the query and value projections are what is trained."""

    def __init__(self, width, heads, bias, rank=0):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.down = nn.Parameter(torch.randn(2, width, rank) / width**0.5) if rank else None
        self.up = nn.Parameter(torch.zeros(2, rank, width)) if rank else None

    def forward(self, x):
        q, k, v = self.qkv(x).split(x.shape[-1], dim=-1)
        if self.down is not None:
            down, up = self.down.to(x.dtype), self.up.to(x.dtype)
            q, v = q + x @ down[0] @ up[0], v + x @ down[1] @ up[1]
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = Attention(width, heads, True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        x = x + self.drop(self.attention(self.norms[0](x)))
        return x + self.drop(self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh")))


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, inner, rank):
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
        self.attention = Attention(width, heads, False, rank)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    """Embeddings, blocks, and the loss of the next token."""

    def __init__(self, vocabulary, width, longest, blocks, checkpointed):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks, self.norm = nn.ModuleList(blocks), nn.LayerNorm(width)
        self.checkpointed = checkpointed
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        logits = self.norm(x) @ self.tokens.weight.T
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def gpt2_medium(small=False):
    """355 M parameters, all trained."""
    layers, width, heads, vocabulary = (2, 128, 4, 1000) if small else (24, 1024, 16, 50257)
    return Model(vocabulary, width, 1024, [Gpt2Block(width, heads) for _ in range(layers)], False), vocabulary


def llama_lora(small=False):
    """1.1 B parameters in bfloat16 that stay, and additions of rank 16 that are trained."""
    layers, width, heads, inner, vocabulary = (2, 128, 4, 256, 1000) if small else (22, 2048, 32, 5632, 32000)
    blocks = [LlamaBlock(width, heads, inner, 16) for _ in range(layers)]
    model = Model(vocabulary, width, 2048, blocks, True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".down" in name and "attention" in name or "attention.up" in name)
        if not parameter.requires_grad:
            parameter.data = parameter.data.bfloat16()
    return model, vocabulary


# Maker, batches and lengths: of GPT-2 so that the GPU always has more to do than the host, whose times scatter by a third.
MODELS = {"gpt2": (gpt2_medium, (12, 16), (640, 1024)), "lora": (llama_lora, (4, 8), (256, 2048))}


def shapes(batches, lengths, count, seed=7):
    """Batch and length of each step, as a data loader with lengths of its own would give them."""
    draw = torch.Generator().manual_seed(seed)
    between = lambda least, most: int(torch.randint(least, most + 1, (), generator=draw))  # noqa: E731
    for _ in range(count):
        length = between(*lengths)
        yield between(*batches), length
