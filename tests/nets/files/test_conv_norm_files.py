"""Files of convolutional networks and BatchNorm: our own format, state dicts of torch, and errors."""

import json
from collections import OrderedDict

import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from support.kinds import KINDS, made, module, same, tensors
from support.network_files import load, refusal
from understudy import nets
from understudy._errors import UserError
from understudy.nets import Shape

pytestmark = pytest.mark.usefixtures("one_thread")
kinds = pytest.mark.parametrize("shape", KINDS.values(), ids=KINDS)


@pytest.fixture(params=["net.safetensors", "net.pt"])
def write(request, tmp_path):
    """Write a state dict as safetensors, and with torch.save."""

    def put(state):
        path = tmp_path / request.param
        if path.suffix == ".safetensors":
            safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)
        else:
            torch.save(state, path)
        return path

    return put


def described(shape):
    """Everything about a shape that is not in a state dict."""
    stated = {"activation": shape.slope} | ({"norm_order": shape.norm} if shape.norm else {})
    if shape.image:
        how = shape.resolved_convolutions
        stated |= {"padding": [each.padding for each in how], "stride": [each.stride for each in how]}
        stated |= {"image": shape.image, "pool": "none"}
    return stated


def flat(population, which=0):
    """Flatten the modules of a network into one `nn.Sequential`, as most networks are written."""
    nested = module(population, which)
    found = []
    for part in nested:
        found += [step for step in part if not isinstance(step, nn.Unflatten)]
    return nn.Sequential(*found)


class TestOurOwn:
    @kinds
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_population_is_restored_bit_for_bit(self, shape, dtype, tmp_path):
        networks = made(shape, 3, dtype=dtype)
        nets.save(networks, tmp_path / "n")
        loaded = load(tmp_path / "n")
        assert same(loaded, networks) and loaded.norm_first == networks.norm_first
        assert torch.equal(
            loaded(torch.ones(2, shape.inputs, dtype=dtype)), networks(torch.ones(2, shape.inputs, dtype=dtype))
        )

    @kinds
    def test_one_network_is_saved_as_plain_tensors(self, shape, tmp_path):
        networks = made(shape, 3)
        nets.save(networks, tmp_path / "n.safetensors", which=1)
        assert same(load(tmp_path / "n.safetensors"), networks[1])
        with safetensors.safe_open(tmp_path / "n.safetensors", "pt") as source:
            names = set(source.keys())
            assert source.get_tensor("layers.0.weight").shape == shape.weights[0]
        parts = ("mean", "variance", "scale", "shift")[: (4 if shape.affine else 2) if shape.norm else 0]
        hidden = range(len(shape.sizes) - 2)
        assert {f"norms.{i}.{part}" for i in hidden for part in parts} == {n for n in names if n.startswith("norms")}

    def test_more_than_ten_layers_keep_their_order(self, tmp_path):
        networks = made(Shape((2, *range(1, 12), 3), norm="before"), 2)
        nets.save(networks, tmp_path / "n")
        assert same(load(tmp_path / "n"), networks)

    def test_metadata_of_plain_networks(self, tmp_path):
        nets.save(made(KINDS["fc"], 1), tmp_path / "n")
        with safetensors.safe_open(tmp_path / "n", "pt") as source:
            assert json.loads(source.metadata()["understudy"]) == {"version": 1, "slope": 0.1}

    def test_metadata_of_convolutional_networks(self, tmp_path):
        nets.save(made(KINDS["conv-after"], 1), tmp_path / "n")
        with safetensors.safe_open(tmp_path / "n", "pt") as source:
            stated = json.loads(source.metadata()["understudy"])
        assert stated == {"version": 1, "slope": 0.0, "image": [6, 7], "norm": "after"}
        nets.save(made(KINDS["conv-strided"], 1), tmp_path / "n")
        with safetensors.safe_open(tmp_path / "n", "pt") as source:
            stated = json.loads(source.metadata()["understudy"])
        assert stated == {"version": 1, "slope": 0.1, "image": [7, 6], "convolutions": [[3, 1, 1], [5, 2, 2]]}

    @pytest.mark.parametrize(
        "stated",
        [
            {"image": [6]},
            {"image": [6, "7"]},
            {"image": 6},
            {"image": [-6, 7]},
            {"norm": "under"},
            {"norm": True},
            {"convolutions": 3},
            {"convolutions": [[3, 1, "x"]]},
            {"convolutions": [[3, 1, 0, 0]]},
        ],
    )
    def test_damaged_metadata(self, tmp_path, stated):
        nets.save(made(KINDS["conv-after"], 1), tmp_path / "n")
        with safetensors.safe_open(tmp_path / "n", "pt") as source:
            held = {name: source.get_tensor(name) for name in source.keys()}  # noqa: SIM118
        text = json.dumps({"version": 1, "slope": 0.0, "image": [6, 7], "norm": "after"} | stated)
        safetensors.torch.save_file(held, tmp_path / "n", {"understudy": text})
        refusal(tmp_path / "n", "metadata", "damaged", "save the networks again")

    def test_what_is_stated_must_agree_with_the_file(self, tmp_path):
        path = tmp_path / "n"
        shape = KINDS["conv-strided"]
        nets.save(made(shape, 1), path)
        agreeing = {"activation": 0.1, "image": (7, 6), "padding": (1, 2), "stride": (1, 2), "pool": "none"}
        assert load(path, **agreeing).shape == shape
        refusal(path, "image (6, 7) was given, but the file records images of 7 × 6", image=(6, 7))
        for name, value in (("padding", 1), ("stride", (2, 1)), ("pool", "max:2")):
            refusal(path, f"{name} {value} was given, but the file records another", **{name: value})
        nets.save(made(KINDS["conv-after"], 1), path)
        refusal(path, "norm_order before was given", "BatchNorm after it", norm_order="before")
        assert not load(path).norm_first

    def test_a_missing_norm_is_named(self, tmp_path):
        nets.save(made(KINDS["conv-before"], 2), tmp_path / "n")
        with safetensors.safe_open(tmp_path / "n", "pt") as source:
            held, metadata = {n: source.get_tensor(n) for n in source.keys()}, source.metadata()  # noqa: SIM118
        rest = {name: tensor for name, tensor in held.items() if not name.startswith("norms.1")}
        safetensors.torch.save_file(rest, tmp_path / "n", metadata)
        refusal(
            tmp_path / "n", "no BatchNorm follows", "'layers.1.weight' (2, 3, 4, 3, 3)", "every hidden layer has one"
        )
        cut = held | {name: tensor[:1] for name, tensor in held.items() if name.startswith("norms.1")}
        safetensors.torch.save_file(cut, tmp_path / "n", metadata)
        refusal(tmp_path / "n", "'norms.1' of 3 nodes does not fit the layer 'layers.1.weight'")

    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def test_a_changed_byte_is_read_or_rejected_with_a_user_error(self, tmp_path_factory, data):
        path = tmp_path_factory.mktemp("changed") / "n.safetensors"
        nets.save(made(KINDS["conv-before"], 2), path)
        whole = bytearray(path.read_bytes())
        whole[data.draw(st.integers(0, 1500))] = data.draw(st.integers(0, 255))
        path.write_bytes(whole)
        try:
            load(path)
        except UserError as error:
            assert path.name in str(error)


class TestStateDicts:
    @kinds
    def test_a_loaded_sequence_equals_the_module(self, shape, write):
        networks = made(shape, 2)
        plain = flat(networks, 1).eval()
        loaded = load(write(plain.state_dict()), **described(shape))
        assert loaded.shape == shape
        assert all(torch.equal(a, b[1:]) for a, b in zip(tensors(loaded), tensors(networks), strict=True))

    def test_the_place_of_batch_norm_must_be_stated(self, write):
        path = write(flat(made(KINDS["fc-before"], 1)).state_dict())
        refusal(
            path, "BatchNorm '1' stands before or after the activation", "--norm-order before", "norm_order='before'"
        )
        for order in ("before", "after"):
            assert load(path, norm_order=order).shape.norm == order

    def test_parts_with_names(self, write):
        networks = made(KINDS["conv-before"], 1)
        first, norm_1, _, second, norm_2, _, third, norm_3, _, _, top = flat(networks)
        modules = {
            "conv1": first,
            "bn1": norm_1,
            "conv2": second,
            "bn2": norm_2,
            "conv3": third,
            "bn3": norm_3,
            "fc": top,
        }
        orders = (
            list(modules),
            ["conv1", "conv2", "conv3", "bn1", "bn2", "bn3", "fc"],
            ["conv1", "conv2", "conv3", "fc", "bn1", "bn2", "bn3"],
        )
        for order in orders:
            named = nn.ModuleDict({name: modules[name] for name in order})
            loaded = load(write(named.state_dict()), **described(networks.shape))
            assert all(torch.equal(a, b) for a, b in zip(tensors(loaded), tensors(networks), strict=True))

    def test_blocks_and_wrappers(self, write):
        networks = made(KINDS["conv-after"], 1)
        first, _, norm_1, second, _, norm_2, _, top = flat(networks)
        features = nn.Sequential(first, nn.ReLU(), norm_1, second, nn.ReLU(), norm_2)
        for named in (
            {"features": features, "classifier": top},
            {"net1": nn.Sequential(first, norm_1), "net2": nn.Sequential(second, norm_2), "top": top},
        ):
            state = nn.ModuleDict(named).state_dict()
            loaded = load(write(state), **described(networks.shape))
            assert all(torch.equal(a, b) for a, b in zip(tensors(loaded), tensors(networks), strict=True))
        wrapped = OrderedDict((f"module.{name}", tensor) for name, tensor in nn.ModuleDict(named).state_dict().items())
        assert load(write(wrapped), **described(networks.shape)).shape == networks.shape

    def test_the_image_must_be_stated(self, write):
        path = write(flat(made(KINDS["conv"], 1)).state_dict())
        refusal(path, "can read images of any size", "--image HEIGHTxWIDTH", "image=(height, width)")
        square = write(flat(made(KINDS["conv-before"], 1)).state_dict())
        assert "without padding and pooling 8x8 would fit" in refusal(square, "--image", norm_order="before")
        given = {"norm_order": "before", "padding": 0, "stride": 1, "pool": "none"}
        assert load(square, image=(8, 8), **given).image == (8, 8)
        assert load(square, image=(7, 10), **given).image == (7, 10)  # 1 × 4 leaves as many numbers as 2 × 2

    def test_missing_biases_and_affine_parts_are_filled_in(self, write):
        network = nn.Sequential(
            *(nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3, affine=False), nn.ReLU()),
            *(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(4 * 9, 5)),
        ).eval()
        loaded = load(write(network.state_dict()), norm_order="before", image=(7, 7), padding=0, pool="none")
        assert loaded.layers[0].bias.tolist() == [[0, 0, 0]] and loaded.norms[0].scale.tolist() == [[1, 1, 1]]
        x = torch.randn(3, 2, 7, 7)
        assert torch.allclose(loaded(x.flatten(1))[0], network(x), atol=1e-5)

    def test_the_widest_precision_wins(self, write):
        network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, dtype=torch.float64), nn.Linear(3, 1).half())
        loaded = load(write(network.state_dict()), norm_order="after")
        assert {t.dtype for t in tensors(loaded)} == {torch.float64}


class TestRejected:
    def test_batch_norm_after_some_layers_only(self, write):
        first = [nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 5), nn.Linear(5, 2)]
        text = refusal(write(nn.Sequential(*first).state_dict()), "no BatchNorm follows", "one follows others")
        assert "'2.weight' (4, 4), '3.weight' (5, 4)" in text and "'0.weight'" not in text
        named = nn.ModuleDict({"fc1": first[0], "bn1": first[1], "fc2": first[2], "fc3": nn.Linear(4, 2)})
        refusal(write(named.state_dict()), "no BatchNorm follows the hidden layers 'fc2.weight' (4, 4),")

    @pytest.mark.parametrize(
        ("parts", "words"),
        [
            ([nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Linear(3, 2)], ("'0' of 3 nodes follows no layer",)),
            ([nn.Linear(3, 2), nn.Linear(2, 2), nn.BatchNorm1d(2)], ("'2' of 2 nodes follows the last layer",)),
            (
                [nn.Linear(3, 2), nn.BatchNorm1d(2), nn.BatchNorm1d(2), nn.Linear(2, 2)],
                ("'2' of 2 nodes follows '1' of 2 nodes",),
            ),
        ],
    )
    def test_batch_norm_elsewhere(self, write, parts, words):
        refusal(write(nn.Sequential(*parts).state_dict()), *words, "must directly follow a hidden layer", "--order")

    def test_batch_norm_in_front_of_the_layer_of_its_number(self, tmp_path):
        parts = {"bn1": nn.BatchNorm1d(3), "fc1": nn.Linear(3, 3), "fc2": nn.Linear(3, 2)}
        torch.save(nn.ModuleDict(parts).state_dict(), tmp_path / "net.pt")
        refusal(tmp_path / "net.pt", "fit together in more than one order", "--order bn1,fc1,fc2")
        refusal(tmp_path / "net.pt", "'bn1' of 3 nodes follows no layer", order=["bn1", "fc1", "fc2"])
        stated = {"order": ["fc1", "bn1", "fc2"], "norm_order": "after"}
        assert load(tmp_path / "net.pt", **stated).shape.norm == "after"

    def test_batch_norm_of_another_size(self, write):
        network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(5), nn.Linear(4, 2))
        refusal(write(network.state_dict()), "'1' of 5 nodes does not fit the layer '0.weight' (4, 3)", "has 4")

    @pytest.mark.parametrize("part", ["running_mean", "running_var", "weight", "bias"])
    def test_batch_norm_in_part(self, write, part):
        state = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).state_dict()
        whole = dict(state)
        del state[f"1.{part}"]
        refusal(write(state), f"but no '1.{part}'", "save the complete layer")
        refusal(write(whole | {f"1.{part}": torch.ones(3)}), f"'1.{part}' (3,)", "(4,)", "must have one shape")

    def test_impossible_statistics(self, write):
        state = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).state_dict()
        refusal(write(state | {"1.running_var": torch.tensor([1.0, -1, 1, 1])}), "'1.running_var'", "below 0")
        refusal(write(state | {"1.running_mean": torch.full((4,), torch.nan)}), "'1.running_mean'", "4 of 4", "finite")
        square = {f"1.{part}": torch.ones(2, 2) for part in ("running_mean", "running_var", "weight", "bias")}
        refusal(write(state | square), "'1.running_mean' must have one number per node", "got (2, 2)")

    @pytest.mark.parametrize("kernel", [1, 2, 5, (3, 5)])
    def test_kernels_of_any_size_are_read(self, write, kernel):
        convolution = nn.Conv2d(2, 3, kernel)
        network = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)).eval()
        x = torch.randn(4, 2, 7, 8)
        outputs = network(x)
        loaded = load(write(network.state_dict()), image=(7, 8), pool="none")
        assert torch.allclose(loaded(x.flatten(1))[0], outputs, atol=1e-5)

    def test_convolutions_without_linear_layers_after_them(self, write):
        for parts in (
            [nn.Conv2d(2, 3, 3)],
            [nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 3)],
            [nn.Linear(2, 2), nn.Conv2d(2, 3, 3), nn.Linear(12, 4)],
        ):
            path = write(nn.Sequential(*parts).state_dict())
            refusal(path, "'0.weight'", "expected convolutions followed by one or more linear layers", "--model")

    def test_strides_and_paddings_that_do_not_fit(self, write):
        network = nn.Sequential(nn.Conv2d(2, 3, 5), nn.Flatten(), nn.Linear(27, 4), nn.ReLU(), nn.Linear(4, 2))
        path = write(network.state_dict())
        assert load(path, image=(6, 6), padding=2, stride=2, pool="none").sizes == (2, 3, 4, 2)
        words = ("become maps of 36 positions", "9 numbers of each of 3 channels", "give the values of the model")
        refusal(path, *words, image=(6, 6), padding=2, stride=1, pool="none")
        refusal(path, "give --pool (in Python pool)", "(--pool max:2 would fit)", image=(6, 6), padding=2, stride=1)
        refusal(path, "are too small for 1 convolutions", image=(2, 2), padding=0)
        refusal(path, "padding must be one, or one for each of 1 convolutions, got 2", image=(6, 6), padding=(1, 2))

    def test_convolutions_that_do_not_chain(self, write):
        network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv2d(4, 3, 3), nn.Linear(12, 4))
        refusal(write(network.state_dict()), "has 3 nodes and the second takes 4", "must be equal;")
        network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Linear(13, 4))
        refusal(write(network.state_dict()), "has 3 nodes and the second takes 13", "or the second a multiple")

    @pytest.mark.parametrize("image", [(8, 8), (4, 4), (3, 40)])
    def test_an_image_that_does_not_fit(self, write, image):
        network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv2d(3, 3, 3), nn.Linear(3 * 2 * 4, 4))
        path = write(network.state_dict())
        assert load(path, image=(6, 8), pool="none").inputs == 2 * 6 * 8
        height, width = image
        words = (f"{height} × {width}", "'2.weight' (4, 24)", "8 numbers of each of 3 channels")
        refusal(path, *words, image=image)

    @pytest.mark.wrong_shapes
    def test_an_image_of_three_sides_or_for_no_convolution(self, write):
        network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Linear(3 * 4, 4))
        with pytest.raises(UserError, match=r"image must be the height and width of the inputs, .* got \(2, 4, 4\)"):
            load(write(network.state_dict()), image=(2, 4, 4))
        refusal(write(nn.Linear(3, 2).state_dict()), "no convolution", "omit it", image=(4, 4))

    def test_ambiguous_order_of_layers(self, tmp_path):
        state = {"low.weight": torch.eye(3), "top.weight": torch.eye(3)}
        state |= {f"even.running_{part}": torch.ones(3) for part in ("mean", "var")}
        safetensors.torch.save_file(state, tmp_path / "n.safetensors")
        refusal(tmp_path / "n.safetensors", "more than one order", "--order ")

    @pytest.mark.wrong_shapes
    def test_inputs_of_another_size(self, write):
        network = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Linear(2 * 30 * 30, 10))
        loaded = load(write(network.state_dict()), image=(32, 32))
        with pytest.raises(UserError, match=r"take 3 · 32 · 32 = 3,072 inputs, but the data has 784 per sample"):
            loaded(torch.zeros(5, 784))


def vgg(norms=True):
    """Small VGG in the layout of torchvision: padded convolutions, pooling, several linear layers."""
    features = []
    for into, out in ((3, 4), (4, 6), (6, 6)):
        features += [nn.Conv2d(into, out, 3, padding=1), *([nn.BatchNorm2d(out)] * norms), nn.ReLU(), nn.MaxPool2d(2)]
    classifier = nn.Sequential(nn.Linear(6 * 49, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 5))
    network = nn.ModuleDict({"features": nn.Sequential(*features), "classifier": classifier})
    for i, part in enumerate(part for part in network.modules() if isinstance(part, nn.BatchNorm2d)):
        part.bias.data = torch.arange(len(part.bias)) - 10.0 * i
    return network


class TestShiftsOfAnyNetwork:
    def test_in_the_order_of_the_network(self, write):
        found = nets.bn_biases(write(vgg().state_dict()))
        assert [name for name, _ in found] == ["features.1.bias", "features.5.bias", "features.9.bias"]
        assert [shift.tolist() for _, shift in found] == [
            [0, 1, 2, 3],
            [-10, -9, -8, -7, -6, -5],
            [-20, -19, -18, -17, -16, -15],
        ]

    def test_names_are_sorted_by_number(self, tmp_path):
        state = nn.Sequential(*(nn.BatchNorm1d(n) for n in range(1, 13))).state_dict()
        safetensors.torch.save_file(state, tmp_path / "n.safetensors")
        assert [len(shift) for _, shift in nets.bn_biases(tmp_path / "n.safetensors")] == list(range(1, 13))

    def test_of_a_state_dict_in_its_own_order(self, tmp_path):
        parts = {"second": nn.BatchNorm1d(2), "first": nn.BatchNorm1d(1), "block": nn.Linear(2, 2)}
        torch.save({"epoch": 3, "state_dict": nn.ModuleDict(parts).state_dict()}, tmp_path / "n.ckpt")
        assert [name for name, _ in nets.bn_biases(tmp_path / "n.ckpt")] == ["second.bias", "first.bias"]

    def test_of_our_own_files(self, tmp_path):
        networks = made(KINDS["conv-before"], 2)
        nets.save(networks, tmp_path / "n")
        found = nets.bn_biases(tmp_path / "n")
        assert [name for name, _ in found] == ["norms.0.shift", "norms.1.shift", "norms.2.shift"]
        assert all(torch.equal(shift, norm.shift) for (_, shift), norm in zip(found, networks.norms, strict=True))

    def test_batch_norms_without_an_affine_part_are_skipped(self, write):
        mixed = nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.BatchNorm1d(2))
        assert [name for name, _ in nets.bn_biases(write(mixed.state_dict()))] == ["1.bias"]
        path = write(nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(2, 2)).state_dict())
        refusal(path, "none of its 1 BatchNorms has an affine part", load=nets.bn_biases)

    def test_a_network_without_batch_norm(self, write):
        path = write(vgg(norms=False).state_dict())
        refusal(path, "no BatchNorm among its 10 tensors", "'*.running_mean'", load=nets.bn_biases)
        layer_norm = write(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)).state_dict())
        refusal(layer_norm, "no BatchNorm among its 4 tensors", load=nets.bn_biases)

    def test_damaged_files(self, write, tmp_path):
        state = vgg().state_dict()
        refusal(write(state | {"features.1.bias": torch.zeros(9)}), "'features.1.bias' (9,)", load=nets.bn_biases)
        path = write(state | {"features.1.bias": torch.full((4,), torch.inf)})
        refusal(path, "'features.1.bias'", "NaN or infinite", load=nets.bn_biases)
        del state["features.5.bias"]
        refusal(write(state), "but no 'features.5.bias'", load=nets.bn_biases)
        path = write(vgg().state_dict())
        path.write_bytes(path.read_bytes()[:-30])
        refusal(path, "truncated", load=nets.bn_biases)
        refusal(tmp_path / "absent.pt", "no such file", load=nets.bn_biases)
