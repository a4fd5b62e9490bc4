"""Optimised images, the torch run of ONNX graphs, and exact local maps."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

import reluscope
from reluscope import lens
from reluscope.errors import InputError, UnsupportedError

torch = pytest.importorskip("torch")
nn = torch.nn

NETS = (
    "cifar10_resnet/onnx/resnet_2b",
    "marabou/onnx/cnn_max_mninst2",
    "marabou/onnx/self-attention-mnist-pgd-medium-sim",
    "marabou_cifar10/onnx/cifar10_small",
    "oval21/onnx/cifar_deep_kw",
    "verivital/onnx/Convnet_avgpool",
    "verivital/onnx/Convnet_maxpool",
    "vit_2023/onnx/ibp_3_3_8",
)


@pytest.fixture(scope="module")
def digits(data_folder):
    raw = gzip.decompress((data_folder / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    return np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28, 1)[:1000]


@pytest.mark.parametrize("name", NETS)
def test_torch_runs_graphs_as_onnxruntime_does(data_folder, name):
    model = lens.as_model(data_folder / f"nets/{name}.onnx")
    x = np.random.default_rng(0).random((1, *model.image_shape)).astype(np.float32)
    names = [layer.name for layer in model.layers if layer.kind not in ("Shape", "Gather", "Concat", "ConstantOfShape")]
    ours, theirs = model.trace(torch.from_numpy(x), names), model.activations(x, names)
    for key, value in theirs.items():
        assert np.abs(ours[key].numpy() - value).max() <= 1e-5 * max(1.0, np.abs(value).max()), key


@pytest.mark.parametrize(("net", "layer"), [("cnn_max_mninst3", 0), ("cnn_max_mninst2", 0), ("cnn_max_mninst2", 1)])
def test_an_optimised_image_beats_a_thousand_digits(data_folder, digits, net, layer):
    model = lens.as_model(data_folder / f"nets/marabou/onnx/{net}.onnx")
    name = model.convolutions()[layer]
    count = len(lens.kernels(model, name))
    dead = lens.dead_channels(model, name, digits)
    for c in range(0, count, 2):
        if c in dead:
            continue
        objective = lens.channel(name, c)
        found = lens.visualise(model, objective, steps=64, rng=c)
        assert found.images.min() >= 0 and found.images.max() <= 1
        assert lens.measure(model, objective, found.images)[0] == pytest.approx(found.values[0], rel=1e-4, abs=1e-5)
        assert found.values[0] > lens.measure(model, objective, digits).max()


@pytest.mark.parametrize("c", [9, 11, 17])
def test_units_that_are_seldom_active_are_driven_too(data_folder, digits, c):
    """Behind a ReLU: one that likes single dots and two that like black, where the way up from noise is flat."""
    model = lens.as_model(data_folder / "nets/verivital/onnx/Convnet_maxpool.onnx")
    objective = lens.channel("Relu_1", c)
    found = lens.visualise(model, objective, steps=64, rng=c)
    assert found.values[0] > 1.05 * lens.measure(model, objective, digits).max()


def test_an_optimised_image_beats_a_thousand_crops_of_photographs(data_folder):
    photographs = pytest.importorskip("sklearn.datasets").load_sample_images().images
    model = lens.as_model(data_folder / "nets/cifar10_resnet/onnx/resnet_2b.onnx")
    crops = lens.crops(photographs, (32, 32), 1000, rng=0)
    for c in (0, 3):
        objective = lens.channel("Conv_2", c)
        found = lens.visualise(model, objective, steps=48, rng=c)
        assert found.values[0] > lens.measure(model, objective, crops).max()


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 64, 5)
    )
    return lens.as_model(module, image_shape=(12, 12, 3))


def test_the_same_seed_gives_the_same_image(small):
    made = [lens.visualise(small, lens.channel("2", 1), steps=12, images=2, rng=4) for _ in range(2)]
    assert np.array_equal(made[0].images, made[1].images)
    other = lens.visualise(small, lens.channel("2", 1), steps=12, images=2, rng=5)
    assert not np.array_equal(made[0].images, other.images)
    assert made[0].values[0] >= made[0].values[1]
    assert made[0].history.shape == (12, 2)


def test_objectives_mean_what_they_say(small):
    images = np.random.default_rng(0).random((3, 12, 12, 3))
    maps = small.activations(images, ["2"])["2"]
    vector = np.array([1.0, -2.0, 0.0, 2.0])
    assert np.allclose(lens.measure(small, lens.channel("2", 3), images), maps[:, 3].mean((1, 2)), atol=1e-6)
    assert np.allclose(lens.measure(small, lens.neuron("2", 1, 4, 5), images), maps[:, 1, 4, 5])
    assert np.allclose(
        lens.measure(small, lens.direction("2", vector), images), maps.mean((2, 3)) @ vector / 3, atol=1e-6
    )
    found = lens.visualise(small, lens.neuron("2", 1, 4, 5), steps=30, low=-1, high=2, rng=0)
    assert found.images.min() >= -1 and found.images.max() <= 2
    assert lens.measure(small, found.objective, found.images)[0] == pytest.approx(found.values[0], rel=1e-5)
    assert found.values[0] > lens.measure(small, lens.neuron("2", 1, 4, 5), images).max()
    grown = lens.visualise(small, lens.direction("2", vector), steps=30, rng=0)
    assert grown.values[0] > lens.measure(small, lens.direction("2", vector), images).max()
    with pytest.raises(InputError, match="must not be zero"):
        lens.direction("2", np.zeros(3))
    with pytest.raises(InputError, match="has no layer 'x'"):
        lens.visualise(small, lens.channel("x", 0))


def test_diversity_pushes_images_apart(small):
    from reluscope.lens.filters import _alike

    def similarity(weight):
        climb = {"steps": 40, "images": 3, "polish": 0.0, "rescue": False, "rng": 0}
        made = lens.visualise(small, lens.channel("1", 2), diversity=weight, **climb)
        return float(_alike(torch, torch.from_numpy(small.activations(made.images, ["1"])["1"])))

    assert similarity(20.0) < similarity(0.0)


def test_a_dead_unit_is_survived():
    module = nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU())
    with torch.no_grad():
        module[0].weight.zero_()
        module[0].bias.fill_(-1.0)
    model = lens.as_model(module, image_shape=(6, 6, 1))
    assert lens.visualise(model, lens.channel("1", 0), steps=5, rng=0).values[0] == 0
    assert lens.dead_channels(model, "1", np.random.default_rng(0).random((4, 6, 6, 1))) == (0,)


def test_local_maps_are_those_of_the_network(data_folder, digits):
    path = data_folder / "nets/marabou/onnx/cnn_max_mninst3.onnx"
    image = digits[7].astype(np.float32) / 255
    found = lens.local_map(lens.as_model(path), image)
    local = reluscope.load(path).local(image.astype(float).reshape(1, -1))
    assert np.allclose(np.asarray(local.C).reshape(10, 28, 28, 1), found.templates, atol=1e-9)
    assert np.allclose(np.asarray(local.d).ravel(), found.offset, atol=1e-9)
    assert np.allclose(found.contributions().sum((1, 2, 3)) + found.offset, found.outputs)


def test_frozen_norms_make_a_vpt_cnn_exactly_affine():
    model = lens.vpt_cnn(lens.vpt_policy("tiny", rng=0))
    before = {k: v.clone() for k, v in model.module.state_dict().items()}
    image = np.random.default_rng(0).random((32, 32, 3))
    found = lens.local_map(model, image, range(4), layer="stacks.1.firstconv.layer")
    assert found.error < 1e-6
    assert found.templates.shape == (4, 32, 32, 3)
    assert all(torch.equal(v, before[k]) and v.dtype == before[k].dtype for k, v in model.module.state_dict().items())
    plain = model.activations(image, ["stacks.1.firstconv.layer"])["stacks.1.firstconv.layer"].ravel()[:4]
    assert np.allclose(found.outputs, plain, atol=1e-5)
    with pytest.raises(UnsupportedError, match="not affine"):
        lens.local_map(model, image, range(4), layer="stacks.1.firstconv.layer", freeze_norms=False)


@pytest.mark.parametrize("norm", [nn.LayerNorm([4, 10, 10]), nn.InstanceNorm2d(4, affine=True), nn.GroupNorm(2, 4)])
def test_every_norm_is_frozen_at_the_image(norm):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(400, 2))
    model = lens.as_model(module, image_shape=(12, 12, 1))
    image = np.random.default_rng(0).random((12, 12, 1))
    found = lens.local_map(model, image)
    assert found.error < 1e-6
    assert np.allclose(found.outputs, model.activations(image, ["output"])["output"][0], atol=1e-5)
    module[2] = nn.GELU()
    with pytest.raises(UnsupportedError, match="not affine"):
        lens.local_map(lens.as_model(module, image_shape=(12, 12, 1)), image)


class Detached(nn.Module):
    def forward(self, x):
        return (x * x.detach()).sum((2, 3))


CURVED = {
    "Softmax": nn.Sequential(nn.Flatten(), nn.Linear(144, 3), nn.Softmax(1)),
    "Sigmoid": nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sigmoid()),
    "BatchNorm with the statistics": nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False)),
    "could not be confirmed": Detached(),
}


@pytest.mark.parametrize("what", CURVED)
def test_what_is_not_affine_is_refused_by_name(what):
    module = CURVED[what]
    model = lens.as_model(module, image_shape=(12, 12, 1), scale=40)  # a saturated softmax is flat, not affine
    with pytest.raises(UnsupportedError, match=what):
        lens.local_map(model, np.random.default_rng(0).random((12, 12, 1)))


def test_a_product_of_two_activations_is_no_affine_map():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3)

        def forward(self, x):
            return self.left(x) * self.right(x)

    image = np.random.default_rng(0).random((12, 12, 1))
    with pytest.raises(UnsupportedError, match="Mul of two values that both depend on the image"):
        lens.local_map(lens.as_model(Gated(), image_shape=(12, 12, 1)), image, [0])


def test_local_maps_pass_batch_norm_relu6_pools_and_skips():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(1, 1, 3, padding=1), nn.BatchNorm2d(1), nn.ReLU6(), nn.MaxPool2d(3, 1, 1)
            )

        def forward(self, x):
            return torch.cat([x + self.body(x), 2 * x.abs().clamp(max=0.7)], 1).mean((2, 3))

    torch.manual_seed(1)
    module = Block()
    image = np.random.default_rng(0).random((12, 12, 1))
    found = lens.local_map(lens.as_model(module, image_shape=(12, 12, 1)), image)
    assert found.error < 1e-6
    step = 1e-7 * np.random.default_rng(1).normal(size=image.shape)
    with torch.no_grad():
        there = module.double().eval()(torch.from_numpy(image + step).permute(2, 0, 1)[None])[0].numpy()
    predicted = np.einsum("jhwc,hwc->j", found.templates, image.astype(np.float32) + step) + found.offset
    rounded = np.einsum("jhwc,hwc->j", found.templates, image.astype(np.float32) - image)
    assert np.abs(there + rounded - predicted).max() < 1e-13


def test_the_model_keeps_no_gradients(small):
    for p in small.module.parameters():
        p.grad = None
    lens.visualise(small, lens.channel("2", 1), steps=8, rng=0)
    assert all(p.grad is None for p in small.module.parameters())


def test_plain_colours_dots_and_real_images_help_where_noise_fails():
    """A unit that likes black only: from noise nothing is active, so there is no way to climb."""
    module = nn.Sequential(nn.Conv2d(1, 1, 5, bias=True), nn.ReLU())
    with torch.no_grad():
        module[0].weight.fill_(-1.0)
        module[0].bias.fill_(0.4)
    model = lens.as_model(module, image_shape=(14, 14, 1))
    found = lens.visualise(model, lens.channel("1", 0), steps=16, rng=0)
    assert found.values[0] == pytest.approx(0.4)
    assert found.images.max() == 0
    assert found.origins == ("plain colour",)
    alone = lens.visualise(model, lens.channel("1", 0), steps=16, rescue=False, rng=0)
    assert alone.values[0] < 0.4 and alone.origins == ("noise",)


def test_the_result_is_never_below_the_fallback(small):
    images = np.random.default_rng(0).random((5, 12, 12, 3)).astype(np.float32)
    good = lens.visualise(small, lens.channel("2", 0), steps=60, rng=1).images
    objective = lens.channel("2", 0)
    few = lens.visualise(small, objective, steps=8, rng=2)
    helped = lens.visualise(small, objective, steps=8, rng=2, fallback=np.concatenate([images, good]))
    best = lens.measure(small, objective, good)[0]
    assert few.values[0] < best <= helped.values[0] + 1e-6
    assert helped.origins == ("fallback",)
    short = lens.visualise(small, objective, steps=3, polish=0.0, rng=2, fallback=good)
    assert short.values[0] >= best - 1e-6
    with pytest.raises(InputError, match="images must have shape"):
        lens.visualise(small, objective, fallback=images[:, :5])


def test_crops_of_many_sizes():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (40, 60, 3), dtype=np.uint8)
    plain = lens.crops([image], (8, 8), 20, rng=0)
    windows = np.lib.stride_tricks.sliding_window_view(image, (8, 8, 3)).reshape(-1, 8, 8, 3) / 255
    assert all((np.abs(windows - one).max((1, 2, 3)) < 1e-6).any() for one in plain)
    large = lens.crops([image], (8, 8), 20, largest=100, rng=0)
    assert large.shape == (20, 8, 8, 3) and large.min() >= 0 and large.max() <= 1
    assert large.std((1, 2)).mean() < 0.8 * plain.std((1, 2)).mean()  # smaller noise: several pixels make one
    assert np.array_equal(large, lens.crops([image], (8, 8), 20, largest=100, rng=0))
    with pytest.raises(InputError, match="at least 50 x 8"):
        lens.crops([image], (50, 8), 1)
