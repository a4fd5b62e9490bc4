"""The lens on models of `transformers`, with random weights and planted heads: each number against the model itself."""

from __future__ import annotations

import numpy as np
import pytest

from reluscope import lens
from reluscope.errors import InputError, UnsupportedError

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

import planted  # noqa: E402

IDS = torch.tensor([planted.sequence()])
INPUTS = {
    "gpt2": {"input_ids": IDS},
    "llama": {"input_ids": IDS},
    "bert": {"input_ids": IDS},
    "t5": {"input_ids": IDS, "decoder_input_ids": IDS[:, :9]},
    "vit": {"pixel_values": torch.rand(2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))},
}
BUILD = {"gpt2": planted.circuit, "llama": planted.llama, "bert": planted.bert, "t5": planted.t5, "vit": planted.vit}


@pytest.fixture(scope="module")
def models():
    return {name: build() for name, build in BUILD.items()}


@pytest.mark.parametrize("name", BUILD)
def test_fused_attention_is_recorded_as_the_models_own(models, name):
    model, inputs = models[name], INPUTS[name]
    assert model.config._attn_implementation == "sdpa"
    got = lens.record_attention(lens.as_model(model), **inputs)
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            said = model(**inputs, output_attentions=True)
        plain = lens.record_attention(model, **inputs)
    finally:
        model.set_attn_implementation("sdpa")
    fields = ("encoder_attentions", "decoder_attentions", "cross_attentions") if name == "t5" else ("attentions",)
    recordings = (got, *got.others)
    assert len(recordings) == len(fields) == 1 + len(plain.others)
    for made, by_hand, field in zip(recordings, (plain, *plain.others), fields, strict=True):
        own = torch.cat([layer[0] for layer in said[field]]).numpy()
        assert np.abs(made.weights.transpose(1, 0, 2) - own).max() < 1e-6  # some take softmax in float32
        assert np.abs(made.outputs - by_hand.outputs).max() < 1e-6 * np.abs(made.outputs).max()
        assert made.modules == by_hand.modules
        assert made.error < 1e-12
        assert f" of {made.name}:" in repr(made)


def test_layers_of_an_encoder_and_a_decoder_are_kept_apart(models):
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS}  # the same lengths: only names tell them apart
    made = lens.record_attention(models["t5"], **inputs)
    names = [r.name for r in (made, *made.others)]
    assert names == [
        "encoder.block.*.layer.*.SelfAttention",
        "decoder.block.*.layer.*.SelfAttention",
        "decoder.block.*.layer.*.EncDecAttention",
    ]
    assert [r.heads[0] for r in (made, *made.others)] == ["0.0", "2.0", "3.0"]
    assert made.others[1].modules[-1] == "decoder.block.1.layer.1.EncDecAttention"


def test_a_recording_keeps_its_names_on_disk(models, tmp_path):
    made = lens.record_attention(models["t5"], **INPUTS["t5"]).others[0]
    made.save(tmp_path / "recording")
    again = lens.load_recording(tmp_path / "recording")
    assert (again.modules, again.name, again.heads) == (made.modules, made.name, made.heads)


def test_planted_heads_are_found_and_no_others(models):
    tokens = planted.sequence()
    found = lens.detect_patterns(lens.record_attention(models["gpt2"], input_ids=IDS), tokens=tokens).detected()
    wanted = {"0.0": "previous frame", "0.1": "duplicate token", "1.0": "induction", "1.1": "current frame"}
    # Where a token has not come before, two of them look elsewhere: that they switch is right too.
    assert {head: set(names) - {"two modes"} for head, names in found.items()} == {h: {n} for h, n in wanted.items()}
    seen = lens.detect_patterns(lens.record_attention(models["llama"], input_ids=IDS), tokens=tokens)
    assert seen.detected() == {"0.1": ("previous frame",)}
    seen = lens.detect_patterns(lens.record_attention(models["t5"], **INPUTS["t5"]), tokens=tokens)
    assert seen.detected() == {"0.1": ("previous frame",), "1.1": ("previous frame",)}  # layers share their positions
    seen = lens.detect_patterns(lens.record_attention(models["vit"], **INPUTS["vit"]))
    assert seen.detected()["1.0"] == ("previous frame",)
    assert not lens.detect_patterns(lens.record_attention(models["bert"], input_ids=IDS), tokens=tokens).detected()


def test_detectors_of_tokens_say_when_they_cannot_tell(models):
    made = lens.record_attention(models["gpt2"], input_ids=IDS)
    assert np.isnan(lens.detect_patterns(made)["1.0"].induction)
    different = [str(i) for i in range(24)]
    assert np.isnan(lens.detect_patterns(made, tokens=different)["1.0"].induction)
    with pytest.raises(InputError, match="tokens must have 24 entries"):
        lens.detect_patterns(made, tokens=[1, 2])
    with pytest.raises(InputError, match="9 queries and 24 keys"):
        lens.detect_patterns(lens.record_attention(models["t5"], **INPUTS["t5"]).others[1])


def test_an_even_head_is_no_detector_of_few_tokens():
    steps = 24
    even = np.tril(np.ones((steps, steps)))
    even /= even.sum(1, keepdims=True)
    recording = lens.Recording(even[:, None].astype(np.float32), ("0.0",), "sequence")
    for tokens in ([0] * steps, [0, 1] * (steps // 2), planted.sequence()):
        found = lens.detect_patterns(recording, tokens=tokens)["0.0"]
        assert not {"duplicate token", "induction"} & set(found.detected(0.2))


OUT = {
    "gpt2": ("transformer.h.{}.attn.c_proj", 2),
    "llama": ("model.layers.{}.self_attn.o_proj", 2),
    "bert": ("bert.encoder.layer.{}.attention.output.dense", 2),
    "vit": ("vit.layers.{}.attention.o_proj", 2),
}


def with_columns(model, name, change, inputs):
    """The model's logits with the input of one projection changed: heads edited by a way of its own."""
    handle = model.get_submodule(name).register_forward_pre_hook(lambda m, args: (change(args[0].clone()), *args[1:]))
    try:
        with torch.no_grad():
            return model(**inputs)[0]
    finally:
        handle.remove()


@pytest.mark.parametrize("how", ["zero", "mean", "resample"])
@pytest.mark.parametrize("name", OUT)
def test_ablation_of_a_head_is_that_of_its_columns(models, name, how):
    model = models[name]
    inputs = INPUTS[name] if name == "vit" else {"input_ids": torch.tensor([planted.sequence(0), planted.sequence(1)])}

    def metric(output):
        return output.flatten(1)[:, 3] - output.flatten(1)[:, -2]

    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    got = lens.ablate(model, inputs, ["0.1", "1.0"], how=how, metric=metric, rng=0)
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    with torch.no_grad():
        plain = metric(model(**inputs)[0])
    for row, (layer, head) in zip(got.change, ((0, 1), (1, 0)), strict=True):
        place, heads = OUT[name]

        def change(x, head=head, heads=heads):
            wide = x.unflatten(-1, (heads, -1))
            values = wide[:, :, head].clone()
            wide[:, :, head] = {
                "zero": lambda: 0 * values,
                "mean": lambda: values.mean((0, 1), keepdim=True).expand_as(values),
                "resample": lambda: values.flip(0),  # with two rows the other one is the only choice
            }[how]()
            return x

        wanted = metric(with_columns(model, place.format(layer), change, inputs)) - plain
        assert np.allclose(row, wanted.numpy(), atol=1e-12)
    assert got.how == how


def test_units_and_modules_are_taken_away(models):
    model, inputs = models["bert"], {"input_ids": IDS}
    name = "bert.encoder.layer.0.intermediate.dense"
    got = lens.ablate(model, inputs, [f"{name}[3]", f"{name}[3:5]", "*.intermediate"], metric=lambda o: o[:, 0, 0])
    with torch.no_grad():
        plain = model(**inputs)[0][0, 0, 0]

        def without(places):
            return model.get_submodule(name).register_forward_hook(
                lambda m, i, o: o.index_fill(-1, torch.tensor(places), 0)
            )

        for row, places in ((0, [3]), (1, [3, 4])):
            handle = without(places)
            wanted = model(**inputs)[0][0, 0, 0] - plain
            handle.remove()
            assert abs(got.change[row, 0] - float(wanted)) < 1e-12
    assert got.parts[2:] == ("bert.encoder.layer.0.intermediate", "bert.encoder.layer.1.intermediate")
    with pytest.raises(InputError, match=r"units 0 to 31, got \[30:33\]"):
        lens.ablate(model, inputs, f"{name}[30:33]")
    with pytest.raises(InputError, match=r"no part 'bert.encoder.layer.7'; close names are"):
        lens.ablate(model, inputs, "bert.encoder.layer.7")
    with pytest.raises(InputError, match=r"heads are 0\.0 to 1\.1"):
        lens.ablate(model, inputs, "4.0")
    with pytest.raises(InputError, match="at least two rows"):
        lens.ablate(model, inputs, how="resample")


CLEAN = torch.tensor([[0, 4, 7, 1, 3, 8, 2, 9, 4]])
CORRUPTED = torch.tensor([[0, 5, 7, 1, 3, 8, 2, 9, 4]])


def answer(output):
    """What the induction head predicts, 7 after 4, over another token."""
    return output[0, -1, 7] - output[0, -1, 3]


def test_patching_finds_the_induction_circuit(models):
    model = models["gpt2"]
    heads = lens.patch(model, {"input_ids": CLEAN}, {"input_ids": CORRUPTED}, answer, "heads", positions="each")
    assert heads.share.shape == (4, 9)
    at = {(r, c): v for r, c, v in heads.ranked()}
    assert at["0.0", "2"] > 0.95  # it says at position 2 that 4 came before
    assert at["1.0", "8"] > 0.95  # it moves the answer to the end
    assert all(abs(v) < 1e-3 for place, v in at.items() if place not in {("0.0", "2"), ("1.0", "8")})
    blocks = lens.patch(model, {"input_ids": CLEAN}, {"input_ids": CORRUPTED}, answer, positions="each")
    assert blocks.rows == ("transformer.h.0", "transformer.h.1")
    assert blocks.share[0, 2] > 0.95
    assert abs(blocks.share[1, 8] - 1) < 1e-9
    back = lens.patch(model, CLEAN, CORRUPTED, answer, "blocks", into="clean")
    assert np.allclose(back.share[:, 0], 1)  # at all positions together a block's output is all there is
    with pytest.raises(InputError, match="no difference"):
        lens.patch(model, CLEAN, CLEAN, answer)
    with pytest.raises(InputError, match="as long as each other"):
        lens.patch(model, CLEAN, CORRUPTED[:, :8], lambda o: o[0, -1, 7])


def test_paths_lead_from_the_previous_token_to_the_keys(models):
    keys, queries, values = (f"transformer.h.1.attn.c_attn[{80 * k}:{80 * k + 40}]" for k in (1, 0, 2))
    found = lens.patch_paths(models["gpt2"], CLEAN, CORRUPTED, answer, "heads", [keys, queries, values, "output"])
    assert found.columns == (keys, queries, values, "output")
    assert found.share[0, 0] > 0.95
    rest = found.share.copy()
    rest[0, 0] = rest[2, 3] = 0
    assert np.abs(rest).max() < 1e-3
    assert found.share[2, 3] > 0.95  # head 1.0 reaches the output


def test_a_path_is_what_two_runs_by_hand_give(models):
    """Senders and receivers of a random model, with every other head held by a way of its own."""
    torch.manual_seed(3)
    config = planted.transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=12, n_positions=24, bos_token_id=None, eos_token_id=None
    )
    model = planted.transformers.GPT2LMHeadModel(config).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(4)
    clean_ids, corrupted_ids = (torch.tensor([planted.sequence(seed, 8)]) for seed in (5, 6))
    got = lens.patch_paths(
        model,
        clean_ids,
        corrupted_ids,
        answer,
        "0.1",
        "transformer.h.1.attn.c_attn[16:24]",
        frozen="*.mlp",
        into="clean",
    )
    seen = {}

    def note(ids):
        handles = [
            model.get_submodule(n).register_forward_hook(
                lambda m, i, o, n=n: seen.__setitem__(n, (i[0].clone(), o.clone()))
            )
            for n in ("transformer.h.0.attn.c_proj", "transformer.h.0.mlp", "transformer.h.1.attn.c_attn")
        ]
        with torch.no_grad():
            out = model(input_ids=ids)[0]
        for h in handles:
            h.remove()
        return out

    corrupted = note(corrupted_ids)
    sender = seen["transformer.h.0.attn.c_proj"][0][..., 8:]
    clean = note(clean_ids)
    held = seen["transformer.h.0.mlp"][1]

    def change(m, args):
        x = args[0].clone()
        x[..., 8:] = sender
        return (x,)

    first = model.transformer.h[0].attn.c_proj.register_forward_pre_hook(change)
    second = model.transformer.h[0].mlp.register_forward_hook(lambda m, i, o: held)
    note(clean_ids)
    first.remove()
    second.remove()
    arrived = seen["transformer.h.1.attn.c_attn"][1][..., 16:24]

    def receive(m, i, o):
        o = o.clone()
        o[..., 16:24] = arrived
        return o

    third = model.transformer.h[1].attn.c_attn.register_forward_hook(receive)
    with torch.no_grad():
        ended = model(input_ids=clean_ids)[0]
    third.remove()
    wanted = (answer(ended) - answer(clean)) / (answer(corrupted) - answer(clean))
    assert abs(got.share[0, 0] - float(wanted)) < 1e-10
    assert abs(float(wanted)) > 1e-6


@pytest.mark.parametrize("name", BUILD)
def test_the_logit_lens_ends_with_the_models_own_answer(models, name):
    found = lens.logit_lens(models[name], INPUTS[name])
    with torch.no_grad():
        own = torch.log_softmax(models[name](**INPUTS[name])[0][0], -1).numpy()
    last = found.log_probabilities[-1]
    assert found.error < 1e-10
    assert np.abs((last[0] if own.ndim == 1 else last) - own).max() < 1e-9
    assert found.probability().shape == found.best.shape
    if name == "gpt2":  # the induction head answers in the second block
        seen = lens.logit_lens(models[name], {"input_ids": CLEAN})
        assert seen.best[:, -1].tolist() == [4, 7]


def test_a_tail_that_is_not_the_models_is_refused(models):
    with pytest.raises(UnsupportedError, match="misses its own logits"):
        lens.logit_lens(models["gpt2"], INPUTS["gpt2"], tail=["lm_head"])


def test_kernels_that_show_no_weights_are_replaced_or_named(models, monkeypatch):
    model, asked = models["gpt2"], []

    def ask(kind):  # GPT-2 has no such kernel, so it cannot really be asked to go back
        asked.append(kind)
        model.config._attn_implementation = kind

    with monkeypatch.context() as patched:
        patched.setattr(model, "set_attn_implementation", ask)
        patched.setattr(model.config, "_attn_implementation_internal", "flex_attention")
        made = lens.record_attention(model, input_ids=IDS)
        assert asked == ["eager", "flex_attention"]
    model.set_attn_implementation("sdpa")
    assert np.allclose(made.weights, lens.record_attention(model, input_ids=IDS).weights)

    class Fused(torch.nn.Linear):
        config = type("Config", (), {"_attn_implementation": "flash_attention_2"})

    with pytest.raises(UnsupportedError, match="'flash_attention_2', which shows no weights"):
        lens.record_attention(Fused(2, 2), torch.ones(1, 2))


def test_tokens_are_attributed_to_by_their_embedding(models):
    model = models["gpt2"]
    found = lens.attribute(model, {"input_ids": CLEAN}, answer, layer="transformer.wte")
    assert found.gap < 0.02 * abs(found.output - found.baseline_output)
    assert found.by_position().shape == (9,)
    with pytest.raises(InputError, match="Name their embedding"):
        lens.attribute(model, {"input_ids": CLEAN}, answer)
    hidden = lens.attribute(model, {"input_ids": CLEAN}, (8, 7), "occlusion", layer="transformer.wte")
    assert hidden.values.shape == (9,)
    heat = lens.attribute(model, {"input_ids": CLEAN}, (8, 7), "grad_cam", layer="transformer.h.0")
    assert heat.values.shape == (9,)
    with pytest.raises(UnsupportedError, match="not affine around this input"):
        lens.attribute(model, {"input_ids": CLEAN}, (8, 7), "exact", layer="transformer.wte")
