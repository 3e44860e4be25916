"""PyTorch at the same work, for bench/compare: a plain Llama-style decoder, and the Free
Transformer written as the paper's equation 8 reads (dense straight-through over all 2^bits codes).

usage: torch_peer.py '{"precision": "bf16", "bits": 0, "dim": 512, "mlp": 1408, "layers": 8,
        "heads": 8, "kv_heads": 2, "vocab": 8192, "context": 512, "rows": 8, "repeats": 5,
        "threads": 2}'
Prints one JSON object with the seconds of every step. Tuned as far as we know how: fused AdamW, fp32
attention through scaled_dot_product_attention (the fastest on a CPU), autocast for bf16.
"""
import json
import math
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

case = json.loads(sys.argv[1])
D, L, N, K, V = (case[key] for key in ("dim", "layers", "heads", "kv_heads", "vocab"))
H, BITS = D // N, case["bits"]
torch.set_num_threads(case["threads"])
torch.manual_seed(0)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def rms_norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


def rotary(T):
    angles = torch.arange(T).float()[:, None] * 10000.0 ** (-torch.arange(0, H, 2).float() / H)
    return angles.cos(), angles.sin()


def rotate(x, table):
    cos, sin = table
    x1, x2 = x.float().chunk(2, -1)
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)


class Block(nn.Module):
    def __init__(self, causal=True):
        super().__init__()
        self.causal = causal
        self.norm1, self.norm2 = nn.Parameter(torch.ones(D)), nn.Parameter(torch.ones(D))
        self.q, self.k, self.v = linear(D, N * H), linear(D, K * H), linear(D, K * H)
        self.o = linear(N * H, D)
        self.gate, self.up = linear(D, case["mlp"]), linear(D, case["mlp"])
        self.down = linear(case["mlp"], D)

    def forward(self, x, kv, table):
        B, T, _ = x.shape
        a = rms_norm(x, self.norm1)
        b = a if kv is x else rms_norm(kv, self.norm1)

        def heads(y, n):
            return y.view(B, T, n, H).transpose(1, 2)

        q = rotate(heads(self.q(a), N), table)
        k = rotate(heads(self.k(b), K), table).repeat_interleave(N // K, 1)
        v = heads(self.v(b), K).float().repeat_interleave(N // K, 1)
        with torch.autocast("cpu", enabled=False):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.o(out.transpose(1, 2).reshape(B, T, -1))
        h = rms_norm(x, self.norm2)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class FreeTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(V, D)
        self.blocks = nn.ModuleList(Block() for _ in range(L))
        self.norm = nn.Parameter(torch.ones(D))
        if BITS:
            self.query = nn.Parameter(torch.zeros(D))
            self.encoder, self.encoder_norm = Block(causal=False), nn.Parameter(torch.ones(D))
            self.readout = linear(D, BITS)
            self.table = nn.Parameter(torch.empty(2**BITS, D))
            codes = (torch.arange(2**BITS)[:, None] >> torch.arange(BITS)) & 1
            self.register_buffer("codes", codes.float())
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def loss(self, tokens):
        x = self.embed(tokens[:, :-1])
        table = rotary(x.shape[1])
        penalty = 0.0
        for i, block in enumerate(self.blocks):
            kv = x
            if BITS and i == L // 2:
                y = self.encoder(self.query.expand_as(x), x, table)
                logits = self.readout(rms_norm(y, self.encoder_norm)).float()
                p = logits.sigmoid()
                bits = (torch.rand_like(p) < p).float()
                z = (bits * 2.0 ** torch.arange(BITS)).sum(-1).long()
                log_p, log_q = F.logsigmoid(logits), F.logsigmoid(-logits)
                kl = (math.log(2) + p * log_p + (1 - p) * log_q).sum(-1)
                penalty = F.relu(kl - 0.5 * math.log(2)).mean()
                G = torch.exp(log_p @ self.codes.T + log_q @ (1 - self.codes).T)
                Y = F.one_hot(z, 2**BITS).to(p.dtype)
                kv = x + ((Y + G - G.detach()) @ self.table).to(x.dtype)
            x = block(x, kv, table)
        out = rms_norm(x, self.norm) @ self.embed.weight.T
        ce = F.cross_entropy(out.float().reshape(-1, V), tokens[:, 1:].reshape(-1))
        return ce + penalty


model = FreeTransformer()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
seconds = []
for step in range(2 + case["repeats"]):
    tokens = torch.randint(V, (case["rows"], case["context"] + 1))
    start = time.perf_counter()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=case["precision"] == "bf16"):
        loss = model.loss(tokens)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step >= 2:
        seconds.append(time.perf_counter() - start)
median = sorted(seconds)[len(seconds) // 2]
print(json.dumps({"torch": torch.__version__, "step_seconds": seconds, "median_seconds": median,
                  "tokens_per_second": case["rows"] * case["context"] / median, **case}))
