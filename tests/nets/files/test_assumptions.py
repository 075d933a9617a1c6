"""State dicts of known modules: with what they lack stated they are read right, without it never silently wrong."""

import itertools
import tempfile
import warnings
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import understudy as us
from understudy import nets
from understudy._errors import UserError
from understudy.nets import Stated

pytestmark = pytest.mark.usefixtures("one_thread")
ACTIVATIONS = {
    "relu": nn.ReLU,
    "leaky:0.1": lambda: nn.LeakyReLU(0.1),
    "linear": nn.Identity,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
}
AVERAGED = "average pooling after the activation"
EPSILON = "BatchNorm ε 10⁻⁵"
DETAILS = ("zero padding", "no dilation or groups", "pooled sizes rounded down", "channels-first flattening")
STACK = ("no skips", "no branches or repeated layers")
POOLS = {
    "none": nn.Identity,
    "max:2": lambda: nn.MaxPool2d(2),
    "average:2": lambda: nn.AvgPool2d(2),
    "max:3/2+1": lambda: nn.MaxPool2d(3, 2, 1),
}


def block(layer, width, norm_order, activation, images):
    """A layer with BatchNorm before or after its activation, or none."""
    norm = nn.BatchNorm2d if images else nn.BatchNorm1d
    parts = {None: [], "before": [norm(width), None], "after": [None, norm(width)]}[norm_order] or [None]
    return [layer, *(ACTIVATIONS[activation]() if part is None else part for part in parts)]


def randomise(module):
    """Draw all parameters and statistics, so that every part of a module changes its function."""
    generator = torch.Generator().manual_seed(0)
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            drawn = torch.randn(tensor.shape, generator=generator)
            tensor.copy_(0.5 + drawn.abs() if name.endswith("running_var") else drawn)
    return module.eval()


@st.composite
def stacks(draw):
    """A fully connected stack, what describes it, inputs, and the assumptions that are true of it."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=2, max_size=5))
    activation, norm_order = (
        draw(st.sampled_from(sorted(ACTIVATIONS))),
        draw(st.sampled_from([None, "before", "after"])),
    )
    parts = []
    for into, out in itertools.pairwise(sizes[:-1]):
        parts += block(nn.Linear(into, out, bias=draw(st.booleans())), out, norm_order, activation, images=False)
    module = nn.Sequential(*parts, nn.Linear(*sizes[-2:]))
    stated = {"activation": activation}
    stated |= {"norm_order": norm_order, "norm_eps": 1e-5} if norm_order and len(sizes) > 2 else {}
    true = {"linear outputs", *STACK, EPSILON} | ({"ReLU"} if activation == "relu" else set())
    return randomise(module), stated, torch.randn(6, sizes[0], generator=torch.Generator().manual_seed(1)), true


@st.composite
def convolutional(draw):
    """A convolutional stack, likewise."""
    count = draw(st.integers(1, 3))
    channels = draw(st.lists(st.integers(1, 3), min_size=count + 1, max_size=count + 1))
    activation, norm_order = (
        draw(st.sampled_from(["relu", "leaky:0.1"])),
        draw(st.sampled_from([None, "before", "after"])),
    )
    image = draw(st.tuples(st.integers(7, 13), st.integers(7, 13)))
    kernels, paddings, strides = (
        draw(st.lists(values, min_size=count, max_size=count))
        for values in (st.sampled_from([1, 2, 3, 5]), st.integers(0, 2), st.sampled_from([1, 1, 2]))
    )
    pools = draw(st.lists(st.sampled_from(sorted(POOLS)), min_size=count, max_size=count))
    parts = []
    for i, (into, out) in enumerate(itertools.pairwise(channels)):
        layer = nn.Conv2d(into, out, kernels[i], strides[i], paddings[i])
        parts += [*block(layer, out, norm_order, activation, images=True), POOLS[pools[i]]()]
    if draw(st.booleans()):
        parts.append(nn.AdaptiveAvgPool2d(1) if pools[-1] == "none" else nn.Identity())
        pools[-1] = "global" if pools[-1] == "none" else pools[-1]
    x = torch.randn(4, channels[0], *image, generator=torch.Generator().manual_seed(1))
    try:
        flat = nn.Sequential(*parts).eval()(x).flatten(1).shape[1]
    except RuntimeError:  # a map became empty
        return None
    module = nn.Sequential(*parts, nn.Flatten(), nn.Linear(flat, 2))
    stated = {"activation": activation, "image": image, "padding": paddings, "stride": strides, "pool": pools}
    stated |= {"norm_order": norm_order, "norm_eps": 1e-5} if norm_order else {}
    true = {"linear outputs", *STACK, EPSILON, *DETAILS, "BatchNorm before pooling", AVERAGED}
    true |= {"ReLU"} if activation == "relu" else set()
    true |= {"no padding"} if not any(paddings) else set()
    true |= {"stride 1"} if set(strides) == {1} else set()
    true |= {"no pooling"} if set(pools) == {"none"} else set()
    return randomise(module), stated, x, true


def write(module, folder, kind):
    """Save as safetensors, with torch.save, or with the prefix of DataParallel."""
    state = module.state_dict()
    path = Path(folder, "net.safetensors" if kind == "safetensors" else "net.pt")
    if kind == "safetensors":
        safetensors.torch.save_file(state, path)
    else:
        prefix = "module." if kind == "parallel" else ""
        torch.save({f"{prefix}{name}": tensor for name, tensor in state.items()}, path)
    return path


def agrees(population, module, x):
    """Whether outputs differ by at most 1e-5 of the largest."""
    with torch.no_grad():
        wanted = module(x)
    return bool((population(x.flatten(1))[0] - wanted).abs().max() <= 1e-5 * max(1e-3, float(wanted.abs().max())))


files = st.sampled_from(["safetensors", "torch", "parallel"])


@settings(max_examples=150, deadline=None)
@given(stacks() | convolutional(), files, st.data())
def test_a_state_dict_is_read_right_refused_or_read_with_a_false_assumption_that_is_reported(drawn, kind, data):
    if drawn is None:
        return
    module, stated, x, true = drawn
    with tempfile.TemporaryDirectory() as folder:
        path = write(module, folder, kind)
        if stated["activation"] in ("tanh", "gelu"):
            with pytest.raises(UserError, match=r"us\.align\(teacher, student, data\).*--model FILE\.py:Class"):
                nets.read(path, Stated(**stated))
            stated.pop("activation")
        else:
            found = nets.read(path, Stated(**stated))
            assert agrees(found.population, module, x)
            assert set(found.words) <= true
        subset = {name: value for name, value in stated.items() if data.draw(st.booleans(), label=name)}
        without_one = [{other: stated[other] for other in stated if other != name} for name in stated]
        for some in (subset, *without_one):
            require_honest(path, some, (module, stated, x, true))


def require_honest(path, some, drawn):
    """Require that a file is refused with an option that decides it, read right, or read with a false assumption."""
    module, stated, x, true = drawn
    try:
        found = nets.read(path, Stated(**some))
    except UserError as error:
        text = str(error)
        assert any(f"--{name.replace('_', '-')}" in text for name in ({*stated, "activation"} - {*some})), text
        return
    assert agrees(found.population, module, x) or set(found.words) - true, found


class Square(nn.Module):
    """Layers defined in another order than they are used in."""

    def __init__(self):
        super().__init__()
        self.last, self.middle, self.first = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.middle(self.first(x).relu()).relu())


class Residual(nn.Module):
    """A skip that leaves no parameter."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, x):
        h = self.fc1(x).relu()
        return self.fc3(h + self.fc2(h).relu())


class Actor(nn.Module):
    """Two heads of one body that would fit on one another."""

    def __init__(self):
        super().__init__()
        self.body, self.actor, self.critic = nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 1)


def save(module, path):
    torch.save(module.state_dict(), path)
    return path


def test_layers_defined_out_of_order(tmp_path):
    module, x = randomise(Square()), torch.randn(5, 4)
    path = save(module, tmp_path / "net.pt")
    with pytest.raises(UserError, match=r"more than one order.*--order last,middle,first"):
        nets.load(path)
    loaded = nets.load(path, order=["first", "middle", "last"], activation="relu")
    assert agrees(loaded, module, x)
    for order, message in (
        (["first", "last"], "order lacks middle; name all layers"),
        (["first", "midle", "last"], "did you mean middle"),
        (["first", "middle", "middle", "last"], "order has the name 'middle' twice"),
    ):
        with pytest.raises(UserError, match=message):
            nets.load(path, order=order)


def test_a_skip_without_parameters_is_among_the_assumptions(tmp_path):
    path = save(Residual(), tmp_path / "net.pt")
    assert nets.read(path).words == ["ReLU", "linear outputs", *STACK]
    assert nets.read(path, Stated(activation="relu", order=["fc1", "fc2", "fc3"])).words == []
    narrow = save(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)), tmp_path / "narrow.pt")
    assert nets.read(narrow).words == ["ReLU", "linear outputs"]


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["stem", "block.conv", "block.downsample.0"], "a skip"),
        (["stem", "block.shortcut"], "a skip"),
        (["res1.fc", "res2.fc"], "a skip"),
        (["layer1.0.conv1", "layer1.0.conv2"], "a skip"),
        (["body", "actor"], "a branch"),
        (["attn.out", "head"], "attention"),
        (["layers.0.q_proj", "layers.0.k_proj"], "attention"),
        (["embed", "head"], "an embedding"),
        (["token_embedding", "head"], "an embedding"),
        (["low", "deconv1"], "a transposed convolution"),
    ],
)
def test_names_that_suggest_more_than_a_stack(tmp_path, names, what):
    torch.save({f"{name}.weight": torch.zeros(4, 4) for name in names}, tmp_path / "net.pt")
    with pytest.raises(UserError, match=rf"suggests {what}.*--model FILE\.py:Class.*us\.align.*--order"):
        nets.load(tmp_path / "net.pt")
    assert len(nets.load(tmp_path / "net.pt", order=names, activation="relu").layers) == len(names)


def test_ordinary_names_suggest_nothing(tmp_path):
    for name in ("result", "resize", "skin", "members", "latent", "keyboard", "values", "monkey"):
        torch.save({f"{name}.weight": torch.zeros(2, 4)}, tmp_path / "net.pt")
        assert nets.load(tmp_path / "net.pt", activation="relu").sizes == (4, 2), name


@pytest.mark.parametrize(
    ("module", "tensor"),
    [
        (nn.LSTM(4, 5), "weight_ih_l0"),
        (nn.TransformerEncoderLayer(8, 2, 16), "self_attn.in_proj_weight"),
        (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)), "1.weight"),
        (nn.Sequential(nn.Linear(4, 4), nn.PReLU(), nn.Linear(4, 2)), "1.weight"),
        (nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.Linear(6, 2)), "0.weight"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)), "parametrizations.weight.original0"),
    ],
)
def test_other_layers_are_refused_by_the_name_of_the_tensor(tmp_path, module, tensor):
    with pytest.raises(UserError, match=rf"'{tensor}' .*--model FILE\.py:Class"):
        nets.load(save(module, tmp_path / "net.pt"))


def test_a_padded_network_with_pooling(tmp_path):
    parts = [nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()]
    module = randomise(nn.Sequential(*parts, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 49, 2)))
    path = save(module, tmp_path / "net.pt")
    with pytest.raises(UserError, match=r"give --image HEIGHTxWIDTH \(in Python image=\(height, width\)\)"):
        nets.load(path)
    with pytest.raises(UserError, match=r"give --padding, --stride and --pool .*\(--padding 1 --pool max:2"):
        nets.load(path, image=(28, 28))
    found = nets.read(path, Stated(image=(28, 28), padding=1, stride=1, pool="max:2", activation="relu"))
    assert found.words == ["zero padding", "no dilation or groups", "channels-first flattening"]
    assert agrees(found.population, module, torch.randn(3, 1, 28, 28))


def test_convolutions_without_anything_are_assumed_where_only_they_fit(tmp_path):
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 26 * 26, 3))
    path = save(randomise(module), tmp_path / "net.pt")
    found = nets.read(path, Stated(image=(28, 28)))
    assert agrees(found.population, module, torch.randn(3, 1, 28, 28))
    convolution = ["no padding", "stride 1", "no pooling", "no dilation or groups", "channels-first flattening"]
    assert found.words == ["ReLU", "linear outputs", *convolution]
    assert str(found).startswith(
        f"{path} read as 1 → 2 → 3 on images of 28 × 28, ReLU assumed, linear outputs assumed, no"
    )
    found = nets.read(path, Stated(image=(28, 28), padding=0, stride=1, pool="none", activation="relu"))
    assert found.words == ["no dilation or groups", "channels-first flattening"] and found.arguments == ["model"]


def test_an_image_that_several_usual_choices_fit(tmp_path):
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    path = save(randomise(module), tmp_path / "net.pt")
    with pytest.raises(
        UserError, match=r"fit --padding 0 --stride 1 --pool none as well as --padding 1 --stride 1 --pool "
    ):
        nets.load(path, image=(8, 8))
    assert agrees(nets.read(path, Stated(image=(8, 8), padding=0)).population, module, torch.randn(3, 1, 8, 8))


def test_batch_norm_that_may_stand_after_the_pooling(tmp_path):
    norm = nn.BatchNorm2d(2)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), norm, nn.Flatten(), nn.Linear(8, 2)).eval()
    convolution = {"image": (6, 6), "padding": 0, "stride": 1, "pool": "max:2"}
    stated = Stated(**convolution, norm_order="after", norm_eps=1e-5, activation="relu")
    others = ["no dilation or groups", "channels-first flattening"]
    assert nets.read(save(module, tmp_path / "net.pt"), stated).words == others  # it does not matter
    norm.weight.data[0] = -1
    found = nets.read(save(module, tmp_path / "net.pt"), stated)
    assert found.words == [*others, "BatchNorm before pooling"] and found.arguments == ["model"]
    assert not agrees(found.population, module, torch.randn(9, 1, 6, 6))


def test_average_pooling_that_may_stand_before_the_activation(tmp_path):
    parts = nn.Conv2d(1, 2, 3), nn.AvgPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)
    path = save(module := nn.Sequential(*parts).eval(), tmp_path / "net.pt")
    stated = Stated(image=(6, 6), padding=0, stride=1, pool="average:2", activation="relu")
    found = nets.read(path, stated)
    assert found.words == ["no dilation or groups", "channels-first flattening", AVERAGED]
    assert found.arguments == ["model"]
    assert not agrees(found.population, module, torch.randn(9, 1, 6, 6))


@pytest.mark.wrong_shapes  # where types are checked, the caller is the check
def test_the_warning_points_to_the_line_that_loads(tmp_path):
    path = save(Residual(), tmp_path / "net.pt")
    with pytest.warns(nets.Assumption) as caught:
        us.load(path)
    assert caught[0].filename == __file__


def test_the_warning_states_what_was_assumed_and_what_decides_it(tmp_path):
    path = save(Residual(), tmp_path / "net.pt")
    with pytest.warns(nets.Assumption) as caught:
        us.load(path)
    (warning,) = caught
    assert str(warning.message) == (
        f"{path} read as 3 → 5 → 5 → 2, ReLU assumed, linear outputs assumed, no skips assumed, no branches or "
        "repeated layers assumed; us.load decides this with activation, order"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        us.load(path, activation="relu", order=["fc1", "fc2", "fc3"])
        us.save(us.load(path, activation="relu", order=["fc1", "fc2", "fc3"]), tmp_path / "n.safetensors")
        us.load(tmp_path / "n.safetensors")  # our own files record everything


@pytest.mark.wrong_shapes
@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"activation": "leaky"}, "activation must be relu, leaky:SLOPE"),
        ({"activation": "leaky:steep"}, "activation must be relu, leaky:SLOPE"),
        ({"activation": float("nan")}, "activation must be .* got nan"),
        ({"activation": "silu"}, r"got 'silu'; networks with others are compared as modules: us\.align"),
        ({"norm_order": "under"}, "norm_order must be before or after"),
        ({"padding": -1}, "padding must be whole numbers of at least 0"),
        ({"padding": [1, (1, 2, 3)]}, r"padding must be whole numbers .* got \(1, 2, 3\)"),
        ({"stride": 0}, "stride must be whole numbers of at least 1"),
        ({"pool": "max"}, "pool must be none, global .* got 'max'"),
        ({"pool": ["max:2", "min:2"]}, "got 'min:2'"),
        ({"pool": "max:0"}, "pool must be whole numbers of at least 1"),
        ({"image": (28,)}, "image must be the height and width"),
        ({"image": (28, 0)}, "image must be the height and width"),
        ({"image": 0}, "image must be the height and width"),
        ({"image": True}, "image must be the height and width"),
        ({"image": 2.5}, r"image must be the height and width .* got 2\.5"),
        ({"image": "12x12"}, "image must be the height and width"),
        ({"activation": [0.1]}, r"activation must be relu.* got \[0\.1\]"),
        ({"activation": True}, "activation must be relu.* got True"),
        ({"norm_order": 1}, "norm_order must be before or after"),
        ({"norm_eps": -1e-3}, r"norm_eps must be a finite number of at least 0, as in 0\.001, got -0\.001"),
        ({"norm_eps": float("nan")}, "norm_eps must be a finite number"),
        ({"norm_eps": float("inf")}, "norm_eps must be a finite number"),
        ({"norm_eps": "1e-3"}, "norm_eps must be a finite number .* got '1e-3'"),
        ({"norm_eps": True}, "norm_eps must be a finite number"),
        ({"padding": 1.5}, r"padding must be whole numbers .* got 1\.5"),
        ({"padding": [None]}, "padding must be whole numbers .* got None"),
        ({"stride": {"height": 1}}, "stride must be whole numbers"),
        ({"pool": 2}, "pool must be none, global .* got 2"),
        ({"pool": [2.5]}, r"pool must be none, global .* got 2\.5"),
        ({"order": 3}, "order must be a list of names"),
        ({"order": ["fc1", 2]}, "order must be a list of names"),
        ({"key": 3}, "key must be a key of the checkpoint"),
        ({"key": ""}, "key must be a key of the checkpoint"),
        ({"model": "net.py:Net", "model_args": "width=3"}, "model_args must be a list of words"),
        ({"model": "net.py:Net", "model_args": [3]}, "model_args must be a list of words"),
        ({"order": "fc1"}, "order must be a list of names"),
        ({"model_args": ["3"]}, "model_args needs model"),
        ({"model": nn.Linear(2, 2)}, r"got a Linear; us\.from_module converts a module at hand"),
    ],
)
def test_values_that_are_not_allowed(stated, message):
    with pytest.raises(UserError, match=message):
        Stated(**stated)


@pytest.mark.parametrize(
    "word", ["none", "global", "max:2", "average:3", "max:3/2", "max:3/2+1", "max:2x1", "average:3x2/2x1+1x0"]
)
def test_words_of_pooling_are_read_as_they_are_written(word):
    from understudy.nets.files.stated import format_pool, parse_pool

    assert format_pool(parse_pool(word)) == word


def test_arguments_without_anything_to_describe_are_refused(tmp_path):
    path = save(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), tmp_path / "net.pt")
    for stated in ({"image": (4, 4)}, {"padding": 1}, {"stride": 2}, {"pool": "max:2"}):
        with pytest.raises(UserError, match=f"{next(iter(stated))} was given, but the network has no convolution"):
            nets.load(path, **stated)
    with pytest.raises(UserError, match="norm_order was given, but the network has no BatchNorm"):
        nets.load(path, norm_order="before")


MODELS = """
from torch import nn

class Stack(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.b, self.a = nn.Linear(width, 2), nn.Linear(3, width)

    def forward(self, x):
        return self.b(nn.functional.leaky_relu(self.a(x), 0.2))

class Tanh(Stack):
    def forward(self, x):
        return self.b(self.a(x).tanh())

def images():
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 2))

def lines():
    return nn.Sequential(nn.Conv1d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
"""


@pytest.fixture
def models(tmp_path):
    """A file of models, and a function that makes one of them with its state dict in a file."""
    from understudy.nets.files.model_files import build_module

    file = tmp_path / "models.py"
    file.write_text(MODELS)

    def make(name, *arguments):
        module = randomise(build_module(f"{file}:{name}", arguments))
        return module, save(module, tmp_path / f"{name}.pt"), f"{file}:{name}"

    return make


def test_with_the_model_nothing_is_assumed(models):
    module, path, name = models("Stack", "width=5")
    found = nets.read(path, Stated(model=name, model_args=["width=5"]))
    assert found.words == [] and found.population.slope == 0.2
    assert agrees(found.population, module, torch.randn(4, 3))
    with pytest.raises(UserError, match="activation cannot be given with a model, which decides it"):
        nets.load(path, model=name, model_args=["width=5"], activation="relu")
    module, path, name = models("Tanh")
    with pytest.raises(UserError, match=r"Tanh\.pt: .*tanh"):
        nets.load(path, model=name)
    for name, image, size in (("images", (6, 6), (1, 6, 6)), ("lines", (1, 6), (1, 6))):
        module, path, spec = models(name)
        with pytest.raises(UserError, match=r"give --image HEIGHTxWIDTH \(in Python image="):
            nets.load(path, model=spec)
        assert agrees(nets.load(path, model=spec, image=image), module, torch.randn(4, *size))


def test_exported_programs_record_everything(tmp_path):
    module = randomise(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LeakyReLU(0.2), nn.Linear(4, 2)))
    torch.export.save(torch.export.export(module, (torch.randn(5, 3),)), tmp_path / "net.pt2")
    (tmp_path / "net.pt").write_bytes((tmp_path / "net.pt2").read_bytes())  # known by its contents too
    for name in ("net.pt2", "net.pt"):
        found = nets.read(tmp_path / name)
        assert found.words == [] and agrees(found.population, module, torch.randn(4, 3))
        assert nets.load(tmp_path / name, activation="leaky:0.2", norm_order="before").slope == 0.2
        with pytest.raises(UserError, match=r"activation relu was given, but the file records leaky .* slope 0\.2"):
            nets.load(tmp_path / name, activation="relu")


def test_onnx_files_record_everything(tmp_path, monkeypatch):
    wanted = nets.from_module(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    (tmp_path / "net.onnx").write_bytes(b"x")
    monkeypatch.setattr("understudy.nets.graphs.onnx.from_onnx", lambda path: wanted)
    found = nets.read(tmp_path / "net.onnx")
    assert found.words == [] and found.population is wanted


@pytest.mark.parametrize(
    "words", ["--model FILE.py:Class", "torch.export.save", "ONNX", "torch.save(model.state_dict()"]
)
def test_whole_models_are_refused_with_the_ways_to_give_them(tmp_path, words):
    torch.save(nn.Linear(2, 1), tmp_path / "net.pt")
    with pytest.raises(UserError) as caught:
        nets.load(tmp_path / "net.pt")
    assert words in str(caught.value)
