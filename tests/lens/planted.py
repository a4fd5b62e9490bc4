"""Models of `transformers` whose weights are made by hand, so that it is known what their heads do."""

from __future__ import annotations

import logging

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
logging.getLogger("transformers").setLevel(logging.ERROR)

TOKENS, PLACES, WIDTH, HEAD = 12, 24, 80, 40
"""Tokens are one-hot in the first 12 of 80 numbers, positions in the next 24; 12 more hold the previous token."""
_NO_END = {"bos_token_id": None, "eos_token_id": None}


def sequence(seed: int = 0, length: int = 24) -> list[int]:
    """Random tokens: every token has come before at several distances."""
    return np.random.default_rng(seed).integers(0, TOKENS, length).tolist()


def circuit():
    """A GPT-2 of two layers and two heads: 0.0 looks at the previous token, 0.1 at earlier copies, 1.0 is an induction
    head that reads what 0.0 wrote, 1.1 looks at the current token. No MLP does anything."""
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=WIDTH, vocab_size=TOKENS, n_positions=PLACES, tie_word_embeddings=True, **_NO_END
    )
    model = transformers.GPT2LMHeadModel(config).double().eval()
    token, place = slice(0, TOKENS), slice(TOKENS, TOKENS + PLACES)
    before = slice(TOKENS + PLACES, 2 * TOKENS + PLACES)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        body = model.transformer
        for norm in (body.ln_f, *(n for h in body.h for n in (h.ln_1, h.ln_2))):
            norm.weight.fill_(1)
        body.wte.weight[:, token] = torch.eye(TOKENS).double()
        body.wpe.weight[:, place] = torch.eye(PLACES).double()
        step = torch.diag(torch.ones(PLACES - 1), 1).double()  # row p of keys' one-hot meets the query at p + 1

        def wire(layer, head, query, key, value=None, out=None, size=1.0):
            weight = body.h[layer].attn.c_attn.weight  # (inputs, outputs)
            for part, blocks in enumerate((query, key)):
                for rows, columns, matrix in blocks:
                    first = part * WIDTH + head * HEAD + columns.start
                    weight[rows, first : first + columns.stop - columns.start] = matrix
            if value is not None:
                weight[value, 2 * WIDTH + head * HEAD : 2 * WIDTH + head * HEAD + TOKENS] = torch.eye(TOKENS).double()
                onto = body.h[layer].attn.c_proj.weight[head * HEAD : head * HEAD + TOKENS]
                onto[:, out] = size * torch.eye(TOKENS).double()

        words, places, strong = slice(0, TOKENS), slice(0, PLACES), 3.0
        same, here = torch.eye(TOKENS).double(), torch.eye(PLACES).double()
        wire(0, 0, [(place, places, strong * step.T)], [(place, places, here)], token, before, 0.15)
        away = slice(TOKENS, TOKENS + PLACES)
        wire(
            0,
            1,
            [(token, words, strong * same), (place, away, strong * here)],
            [(token, words, same), (place, away, -here)],
        )
        wire(1, 0, [(token, words, strong * same)], [(before, words, same)], token, token)
        wire(1, 1, [(place, places, strong * here)], [(place, places, here)])
    return model


def llama(lag: int = 1):
    """A Llama whose head 0.1 looks `lag` tokens back: with rotary positions, queries and keys are fixed vectors."""
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, vocab_size=TOKENS, attention_bias=True, **_NO_END,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).double().eval()
    layer = model.model.layers[0].self_attn
    turn = lag / 10000.0 ** (torch.arange(16).double() / 16)
    strength = torch.zeros(16).double()
    strength[:8] = 6.0  # the fast angles tell neighbours apart
    with torch.no_grad():
        for p in (layer.q_proj, layer.k_proj):
            p.weight.zero_()
            p.bias.zero_()
        layer.q_proj.bias[32:48] = strength
        layer.k_proj.bias[:16] = strength * torch.cos(turn)
        layer.k_proj.bias[16:] = strength * torch.sin(turn)
    return model


def t5():
    """A T5 whose encoder has a previous-token head, 0.1, by its relative positions."""
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=TOKENS, decoder_start_token_id=0
    )
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(config).double().eval()
    layer = model.encoder.block[0].layer[0].SelfAttention
    with torch.no_grad():
        layer.relative_attention_bias.weight[1, 1] = 60.0  # bucket 1: one position to the left
    return model


def bert():
    """A BERT of random weights."""
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=TOKENS,
        max_position_embeddings=32,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.BertForMaskedLM(config).double().eval()


def vit():
    """A vision transformer whose head 1.0 looks at the patch before."""
    config = transformers.ViTConfig(
        hidden_size=40, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8,
        num_labels=5,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(config).double().eval()
    with torch.no_grad():
        model.vit.embeddings.position_embeddings[0, :, :17] = 20 * torch.eye(17).double()
        layer = model.vit.layers[1].attention
        layer.q_proj.weight[:20] = 0
        layer.k_proj.weight[:20] = 0
        layer.q_proj.weight[:17, :17] = 3 * torch.diag(torch.ones(16), 1).double()
        layer.k_proj.weight[:17, :17] = torch.eye(17).double()
    return model
