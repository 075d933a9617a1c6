"""Modules of PyTorch as populations and back: the same outputs, and refusals by the name of the operation."""

import copy
import os
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations, prune

import understudy as us
from understudy.nets import from_program

pytestmark = pytest.mark.usefixtures("one_thread")


def trained(model, seed=0):
    """Give a module random statistics and affine parts of BatchNorm, as after training, in evaluation mode."""
    torch.manual_seed(seed)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
            if part.affine:
                nn.init.normal_(part.weight)
                nn.init.normal_(part.bias)
    return model.eval()


class Functions(nn.Module):
    """Layers as modules, all else as functions."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.top = nn.Conv2d(8, 6, (3, 1), dilation=2, groups=2), nn.Linear(6, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
        x = F.adaptive_avg_pool2d(torch.relu(self.conv2(x)), 1)
        return self.top(F.dropout(x.view(x.size(0), -1), training=self.training))


class Bare(nn.Module):
    """Parameters of its own, given to functions."""

    def __init__(self):
        super().__init__()
        self.w, self.b, self.v = (nn.Parameter(torch.randn(*size)) for size in ((5, 4), (5,), (2, 5)))

    def forward(self, x):
        return F.linear(F.leaky_relu(F.linear(x, self.w, self.b), 0.1), self.v)


class PoolFirst(nn.Module):
    """Max pooling before ReLU, as in the first example of PyTorch."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 5), nn.Conv2d(4, 6, 5)
        self.fc1, self.fc2 = nn.Linear(96, 12), nn.Linear(12, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu(self.fc1(x.view(-1, 96))))


class Stated(nn.Module):
    """Layers and a function of them and the inputs."""

    def __init__(self, forward, *layers):
        super().__init__()
        self.layers, self.call = nn.ModuleList(layers), forward

    def forward(self, x):
        return self.call(self.layers, x)


def between(function, size=5):
    """A function between two linear layers."""
    return Stated(lambda layers, x: layers[1](function(layers[0](x))), nn.Linear(4, 5), nn.Linear(size, 2))


def pooled(function, nodes):
    """A function between a convolution of 6 × 4 pixels, which has 3 channels, and a linear layer."""
    return Stated(
        lambda layers, x: layers[1](function(layers[0](x))), nn.Conv2d(2, 3, 3, padding=1), nn.Linear(nodes, 2)
    )


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(x + torch.relu(self.a(x)))


def wide(*more):
    return nn.Sequential(nn.Linear(4, 5), *more, nn.Linear(5, 2))


def pictures(*more, into=2):
    return nn.Sequential(nn.Conv2d(into, 3, 3, padding=1), *more)


MODELS = {
    "relu": (wide(nn.ReLU()), (4,)),
    "norm before": (wide(nn.BatchNorm1d(5), nn.ReLU()), (4,)),
    "norm after": (wide(nn.ReLU(), nn.BatchNorm1d(5, eps=1e-3)), (4,)),
    "norm on both sides and on the outputs": (
        nn.Sequential(*wide(nn.BatchNorm1d(5), nn.LeakyReLU(0.2), nn.BatchNorm1d(5)), nn.BatchNorm1d(2)),
        (4,),
    ),
    "some norms": (
        nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 2)),
        (4,),
    ),
    "linear": (wide(nn.Identity()), (4,)),
    "no bias in one layer": (nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 2)), (4,)),
    "functions": (Functions(), (3, 12, 12)),
    "parameters in functions": (Bare(), (4,)),
    "pooling before ReLU": (PoolFirst(), (1, 28, 28)),
    "line": (
        nn.Sequential(
            nn.Conv1d(2, 3, 3, 2, 1), nn.BatchNorm1d(3), nn.ReLU(), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(6, 2)
        ),
        (2, 8),
    ),
    "strides and averages": (
        pictures(
            *(nn.BatchNorm2d(3, affine=False), nn.ReLU(inplace=True), nn.AvgPool2d(2, padding=1)),
            *(nn.Conv2d(3, 4, 2, stride=2, padding="valid"), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(4, 3)),
        ),
        (2, 5, 4),
    ),
    "adaptive pooling": (
        pictures(nn.ReLU(), nn.AdaptiveMaxPool2d((3, 2)), nn.Flatten(), nn.Linear(18, 5), nn.ReLU(), nn.Linear(5, 2)),
        (2, 6, 4),
    ),
}
FUNCTIONS = {
    "F.relu": between(F.relu),
    "relu in place": between(lambda x: x.relu_()),
    "the value changed in place": between(lambda x: (F.relu_(x), x)[1]),
    "clamp": between(lambda x: x.clamp(min=0)),
    "absolute value": between(torch.abs),
    "x.abs()": between(lambda x: x.abs()),
    "leaky": between(lambda x: F.leaky_relu(x, 0.3)),
    "no dropout": between(lambda x: F.dropout(F.relu(x), training=False)),
    "products": Stated(
        lambda layers, x: 1 + torch.relu(x @ layers[0].weight.T + layers[0].bias) @ layers[1].weight.t(),
        *(nn.Linear(4, 5), nn.Linear(5, 2)),
    ),
    "one layer twice": Stated(
        lambda layers, x: layers[1](F.relu(layers[0](F.relu(layers[0](x))))), nn.Linear(4, 4), nn.Linear(4, 2)
    ),
    "one output without its axis": Stated(
        lambda layers, x: layers[1](F.relu(layers[0](x))).squeeze(-1), nn.Linear(4, 5), nn.Linear(5, 1)
    ),
}
POOLED = {
    "view by length": pooled(lambda x: F.relu(x).view(len(x), -1), 72),
    "reshape by shape": pooled(lambda x: F.relu(x).reshape(x.shape[0], -1), 72),
    "torch.flatten": pooled(lambda x: torch.flatten(F.max_pool2d(F.relu(x), 2), 1), 18),
    "ReLU after flattening": pooled(lambda x: F.relu(x.flatten(1)), 72),
    "mean of a map": pooled(lambda x: F.relu(x).mean((2, 3)), 3),
    "maximum of a map": pooled(lambda x: F.relu(x).amax([-1, -2]), 3),
    "mean, squeezed": pooled(lambda x: F.relu(x).mean((2, 3), keepdim=True).squeeze(-1).squeeze(-1), 3),
    "one axis adapted": pooled(lambda x: F.adaptive_avg_pool2d(F.relu(x), (None, 1)).flatten(1), 18),
    "ceil_mode without a difference": pooled(lambda x: F.avg_pool2d(F.relu(x), 2, ceil_mode=True).flatten(1), 18),
}
MODELS |= {name: (model, (4,)) for name, model in FUNCTIONS.items()}
MODELS |= {name: (model, (2, 6, 4)) for name, model in POOLED.items()}
MODELS |= {
    "images from flat inputs": (
        Stated(
            lambda layers, x: layers[1](F.relu(layers[0](x.view(-1, 1, 4, 4))).flatten(1)),
            *(nn.Conv2d(1, 3, 3), nn.Linear(12, 2)),
        ),
        (16,),
    ),
    "padding of even kernels": (
        pictures(nn.ReLU(), nn.Conv2d(3, 4, (4, 2), padding="same", dilation=(1, 3)), nn.ReLU(), nn.Flatten()).append(
            nn.Linear(80, 2)
        ),
        (2, 5, 4),
    ),
    "padding of an even kernel of a line": (
        nn.Sequential(nn.Conv1d(2, 4, 4, padding="same", groups=2), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()).append(
            nn.Linear(16, 2)
        ),
        (2, 8),
    ),
    "weight norm": (nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 5)), nn.ReLU(), nn.Linear(5, 2)), (4,)),
    "spectral norm": (nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 5)), nn.Linear(5, 2)), (4,)),
    "pruned": (nn.Sequential(prune.l1_unstructured(nn.Linear(4, 5), "weight", 0.5), nn.ReLU(), nn.Linear(5, 2)), (4,)),
    "nested": (
        nn.Sequential(nn.Sequential(nn.Linear(4, 5), nn.Identity()), nn.Sequential(nn.ReLU()), nn.Linear(5, 2)),
        (4,),
    ),
    "data parallel": (nn.DataParallel(wide(nn.ReLU())), (4,)),
    "compiled": (lambda: torch.compile(wide(nn.ReLU()), backend="eager"), (4,)),  # its import takes seconds
    "small ε": (wide(nn.BatchNorm1d(5, eps=1e-12), nn.ReLU()), (4,)),
}
models = pytest.mark.parametrize(("model", "size"), MODELS.values(), ids=MODELS)


@models
def test_outputs_are_those_of_the_module_also_after_a_round_trip_and_from_a_file(model, size, tmp_path):
    model, x = trained(model if isinstance(model, nn.Module) else model()), torch.randn(20, *size)
    x = x.to(next(model.parameters()).device)  # DataParallel uses a GPU where there is one
    population = us.from_module(model, x)
    with torch.no_grad():
        wanted = model(x).reshape(20, -1)
    found = population(x.flatten(1))
    torch.testing.assert_close(found[0], wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))

    us.save(population, tmp_path / "n.safetensors")
    stored = us.load(tmp_path / "n.safetensors").to(x.device)
    assert stored.shape == population.shape and torch.equal(stored(x.flatten(1)), found)

    require_same(us.from_module(population.to_module(), image=population.image), population)  # on random images


@st.composite
def stacks(draw):
    """Convolutions of a line or of images with BatchNorm, activation and pooling, or none; then linear layers."""
    slope, axes = draw(st.sampled_from([0.0, 0.1, -1.0])), draw(st.integers(1, 2))
    channels = draw(st.integers(1, 3))
    size = (channels, *(draw(st.integers(8, 11)) for _ in range(axes)))
    conv, norm, most, mean, adapt = (
        (nn.Conv1d, nn.BatchNorm1d, nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d)
        if axes == 1
        else (nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
    )

    def each(least, largest):
        return tuple(draw(st.integers(least, largest)) for _ in range(axes))

    def hidden(nodes, norm):
        middle = [nn.LeakyReLU(slope) if slope else nn.ReLU()]
        if draw(st.booleans()):
            middle.insert(draw(st.integers(0, 1)), norm(nodes, eps=draw(st.sampled_from([1e-5, 1e-3, 1e-12]))))
        return middle

    parts = []
    for _ in range(draw(st.integers(0, 2))):
        into, channels = channels, 2 * draw(st.integers(1, 2))
        groups = 2 if into % 2 == 0 and draw(st.booleans()) else 1
        how = {"dilation": each(1, 2), "groups": groups, "bias": draw(st.booleans())}
        if draw(st.booleans()):
            parts.append(conv(into, channels, each(1, 4), padding="same", **how))
        else:
            parts.append(conv(into, channels, each(1, 3), each(1, 2), each(1, 2), **how))
        pool = draw(st.sampled_from([None, most(2, 1), most(2, 1, 1), mean(2, 1), mean(2, 1, 1), adapt(1)]))
        parts += [*hidden(channels, norm), *([pool] if pool else [])]
    parts.append(nn.Flatten())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch, about padding of even kernels
        try:
            nodes = int(nn.Sequential(*parts).eval()(torch.zeros(1, *size)).shape[1])
        except RuntimeError:
            reject()  # a kernel that is larger than its map
    return nn.Sequential(*parts, nn.Linear(nodes, 4), *hidden(4, nn.BatchNorm1d), nn.Linear(4, 2)), size


@settings(max_examples=5 if settings().max_examples < 100 else 50)
@given(stacks(), st.integers(0, 99))
def test_any_stack_of_layers_has_the_outputs_of_its_module_and_survives_the_round_trip(drawn, seed):
    model, size = drawn
    model, x = trained(model, seed), torch.randn(4, *size)
    population = us.from_module(model, x)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = model(x)
    torch.testing.assert_close(population(x.flatten(1))[0], wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))
    require_same(us.from_module(population.to_module(), image=population.image), population)


def require_same(one, other):
    """Two populations are equal bit by bit."""
    assert one.shape == other.shape
    for a, b in zip((*one.layers, *one.norms), (*other.layers, *other.norms), strict=True):
        assert all(torch.equal(x, y) if x is not None else y is None for x, y in zip(a, b, strict=True))


def test_an_exported_program_needs_no_module():
    model = trained(copy.deepcopy(MODELS["functions"][0]))
    x = torch.randn(2, 3, 12, 12)
    program = torch.export.export(model, (x,))
    with torch.no_grad():
        torch.testing.assert_close(from_program(program)(x.flatten(1))[0], model(x), rtol=1e-5, atol=1e-5)


REFUSED = {
    "1 (GELU): the operation gelu": wide(nn.GELU()),
    "1 (Tanh): the operation tanh": wide(nn.Tanh()),
    "relu6: the operation relu6": between(F.relu6),
    "dropout: dropout also in evaluation mode": between(lambda x: F.dropout(x)),
    "relu: its result is used by add, add": between(lambda x: (lambda h: h + h)(F.relu(x))),
    "div: stands before the first layer; apply it to the data": Stated(
        lambda layers, x: layers[0]((x - 1) / 2), nn.Linear(4, 2)
    ),
    "mul: the operation mul": Stated(lambda layers, x: 2 * layers[0](x), nn.Linear(4, 2)),
    "Stated returns a dict": Stated(lambda layers, x: {"y": layers[0](x)}, nn.Linear(4, 2)),
    "one tensor of outputs, got 2": Stated(lambda layers, x: (layers[0](x), x), nn.Linear(4, 2)),
    "wrap it in a module that takes one tensor and returns one": Stated(
        lambda layers, x: layers[0](x["x"]), nn.Linear(4, 2)
    ),
    "Stated could not be followed from its inputs [8, 4]": Stated(
        lambda layers, x: layers[0](x) if x.sum() > 0 else x, nn.Linear(4, 2)
    ),
    "its weights are computed by matrix_exp": nn.Sequential(parametrizations.orthogonal(nn.Linear(4, 4))),
    "lazy layers without weights yet": nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 2)),
    "weights on the device meta": nn.Linear(4, 2, device="meta"),
    "0 (Linear): some of its weights are NaN": nn.Sequential(nn.Linear(4, 2)).apply(
        lambda part: nn.init.constant_(part.weight, float("nan")) if isinstance(part, nn.Linear) else None
    ),
    "2 (LayerNorm): the operation layer_norm": wide(nn.ReLU(), nn.LayerNorm(5)),
    "3 (Softmax): the operation softmax follows the outputs; give the model without it": nn.Sequential(
        *wide(nn.ReLU()), nn.Softmax(-1)
    ),
    "3 (ReLU): follows the outputs": nn.Sequential(*wide(nn.ReLU()), nn.ReLU()),
    "used by a (Linear), add, but only stacks of layers without skips": Skip(),
    "one activation, got slopes below zero of 0 (Linear): 0, 2 (Linear): 0.1": nn.Sequential(
        nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5), nn.LeakyReLU(0.1), nn.Linear(5, 2)
    ),
    "0 (ReLU): stands before the first layer": nn.Sequential(nn.ReLU(), nn.Linear(4, 2)),
    "1 (BatchNorm1d): BatchNorm without running statistics": wide(
        nn.BatchNorm1d(5, track_running_stats=False), nn.ReLU()
    ),
    "GRU has no nn.Linear, nn.Conv1d or nn.Conv2d; give a batch of its inputs": nn.GRU(4, 2),
    "Sequential has convolutions, whose inputs can have any size": pictures(nn.ReLU(), nn.Flatten(), nn.Linear(3, 2)),
}


@pytest.mark.parametrize(("words", "model"), REFUSED.items(), ids=[words.split(":")[0] for words in REFUSED])
def test_what_a_population_cannot_represent_is_refused_by_name(words, model):
    with pytest.raises(us.UserError) as refused:
        us.from_module(model.eval())
    assert words in str(refused.value)


def negative_scale(norm):
    nn.init.constant_(norm.weight, -1.0)
    return norm


PICTURES_REFUSED = {
    "2 (AdaptiveAvgPool2d): adaptive pooling from [7, 7] to [5, 5] has kernels": pictures(
        nn.ReLU(), nn.AdaptiveAvgPool2d(5), nn.Flatten(), nn.Linear(75, 2)
    ),
    "2 (BatchNorm1d): BatchNorm of 147 values above the layer 0 (Conv2d), which has 3": pictures(
        nn.Flatten(), nn.BatchNorm1d(147), nn.ReLU(), nn.Linear(147, 2)
    ),
    "0 (Conv2d): padding is supported only with zeros, got circular": nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), nn.ReLU(), nn.Flatten(), nn.Linear(147, 2)
    ),
    "1 (GroupNorm): the operation group_norm": pictures(nn.GroupNorm(1, 3), nn.ReLU(), nn.Flatten(), nn.Linear(147, 2)),
    "1 (AvgPool2d): average pooling with count_include_pad=False": pictures(
        nn.AvgPool2d(3, padding=1, count_include_pad=False), nn.Flatten(), nn.Linear(27, 2)
    ),
    "2 (MaxPool2d): pooling with ceil_mode=True": pictures(
        nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(), nn.Linear(48, 2)
    ),
    "1 (AvgPool2d): stands before the activation": pictures(nn.AvgPool2d(7), nn.ReLU(), nn.Flatten(), nn.Linear(3, 2)),
    "3 (AvgPool2d): a second pooling": pictures(
        nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(3, 2)
    ),
    "3 (BatchNorm2d): BatchNorm after the pooling 2 (MaxPool2d), and the two do not commute": pictures(
        nn.ReLU(), nn.MaxPool2d(7), negative_scale(nn.BatchNorm2d(3)), nn.Flatten(), nn.Linear(3, 2)
    ),
    "2 (ZeroPad2d): padding is supported only directly before a convolution": pictures(
        nn.ReLU(), nn.ZeroPad2d(1), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(27, 2)
    ),
    "0 (ConstantPad2d): padding is supported only with zeros": nn.Sequential(
        nn.ConstantPad2d(1, 2.0), nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(147, 2)
    ),
    "could not be followed from its inputs [8, 2, 7, 7]": pictures(nn.ReLU(), nn.Flatten(), nn.Linear(3, 2)),
}


@pytest.mark.parametrize(("words", "model"), PICTURES_REFUSED.items(), ids=[w.split(":")[0] for w in PICTURES_REFUSED])
def test_what_a_convolutional_population_cannot_represent_is_refused_by_name(words, model):
    with pytest.raises(us.UserError) as refused:
        us.from_module(model.eval(), image=(7, 7))
    assert words in str(refused.value)


def test_a_module_in_training_mode_is_evaluated_and_restored():
    model = wide(nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout()).train()
    model[2].eval()
    before = copy.deepcopy(model.state_dict())
    said = "Sequential is in training mode with BatchNorm1d and Dropout; it is evaluated in evaluation mode"
    with pytest.warns(UserWarning, match=said) as warned:
        us.from_module(model)
    assert warned[0].filename == __file__ or os.environ.get("UNDERSTUDY_PROFILE") == "deep"  # its checks add frames
    assert [part.training for part in model] == [True, True, False, True, True]
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        us.from_module(wide(nn.ReLU()).train())  # no part of it depends on the mode


def test_a_module_that_depends_on_more_than_its_inputs_is_refused():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(4, 2), 0

        def forward(self, x):
            self.calls += 1
            return self.layer(x) if self.calls < 3 else 2 * self.layer(x)

    with pytest.raises(us.UserError, match="Counting"):
        us.from_module(Counting().eval())


def test_pooled_networks_are_measured_and_their_modulation_refused():
    model = trained(copy.deepcopy(MODELS["pooling before ReLU"][0]))
    population = us.from_module(model, image=(28, 28))
    x = torch.randn(5, 784)
    with torch.no_grad():
        first = F.relu(model.conv1(x.view(5, 1, 28, 28)))
    found = population.activations(x).hidden[0]
    torch.testing.assert_close(found[0], first.permute(0, 2, 3, 1).flatten(0, 2), rtol=1e-5, atol=1e-5)
    assert population.shape.maps == ((24, 24), (8, 8)) and population.shape.spatial_sizes[1:] == ((12, 12), (4, 4))
    (first, *_) = us.align(population, population, x)
    assert (first.best_correlation > 0.999).all()
    with pytest.raises(us.UserError, match="choose networks without pooling"):
        us.measures.modulated_fan_out(population, x)


def test_networks_are_chosen_by_index():
    teacher = us.teachers.distinct_rows((4, 3, 2), seeds=[1, 2])
    x = torch.randn(5, 4)
    with torch.no_grad():
        torch.testing.assert_close(teacher.to_module(1)(x), teacher(x)[1])
    with pytest.raises(us.UserError, match="which must be between 0 and 1"):
        teacher.to_module(2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_precisions_are_kept_or_widened(dtype):
    population = us.from_module(wide(nn.ReLU()).to(dtype).eval())
    assert population.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_training_mode_comes_back_also_after_an_error():
    model = wide(nn.Dropout(), nn.GELU()).train()
    with pytest.warns(UserWarning, match="training mode with Dropout"), pytest.raises(us.UserError, match="gelu"):
        us.from_module(model)
    assert all(part.training for part in model.modules())


def test_nothing_is_printed_where_a_module_cannot_be_followed(capfd):
    model = Stated(lambda layers, x: layers[0](x) if x.sum() > 0 else x, nn.Linear(4, 2))
    with pytest.raises(us.UserError, match="could not be followed"):
        us.from_module(model.eval())
    assert capfd.readouterr() == ("", "")


@pytest.mark.wrong_shapes
@pytest.mark.parametrize("image", [7, (7,), (7, 7, 7), (7, 0), (7.0, 7.0)])
def test_the_size_of_images_is_validated(image):
    with pytest.raises(us.UserError, match=r"image must be \(height, width\)"):
        us.from_module(pictures(nn.ReLU(), nn.Flatten(), nn.Linear(3 * 49, 2)).eval(), image=image)


def test_outputs_are_compared_without_the_shorter_numbers_of_gpus():
    seen = []

    def forward(layers, x):
        if not torch.compiler.is_exporting():
            seen.append(torch.backends.cudnn.allow_tf32)
        return layers[0](x)

    before = torch.backends.cudnn.allow_tf32
    us.from_module(Stated(forward, nn.Linear(4, 2)).eval(), torch.randn(3, 4))
    assert seen and not any(seen) and torch.backends.cudnn.allow_tf32 == before


def test_layers_may_be_defined_in_any_order():
    model = Stated(lambda layers, x: layers[0](F.relu(layers[1](x))), nn.Linear(5, 2), nn.Linear(4, 5))
    assert us.from_module(model.eval()).sizes == (4, 5, 2)
    line = nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2)).eval()
    assert us.from_module(line, image=(8,)).shape == us.from_module(line, image=(1, 8)).shape


def test_inputs_are_those_of_the_user_in_the_precision_of_the_module():
    model = wide(nn.ReLU()).eval()
    assert us.from_module(model, torch.randn(3, 4, dtype=torch.float64)).dtype == torch.float32
    assert us.from_module(model, torch.randn(3, 4).numpy()).sizes == (4, 5, 2)
    with pytest.raises(us.UserError, match=r"at least one sample, got \[0, 4\]"):
        us.from_module(model, torch.randn(0, 4))


@pytest.mark.wrong_shapes
def test_a_state_dict_is_no_module():
    with pytest.raises(us.UserError, match=r"takes an nn\.Module, got a"):
        us.from_module(wide(nn.ReLU()).state_dict())


@pytest.mark.parametrize("slope", [0.0, 0.3, -1.0, 1.0])
def test_every_activation_survives_the_round_trip(slope):
    layers = tuple(us.nets.Layer(torch.randn(1, *size), None) for size in ((5, 4), (5, 5), (2, 5)))
    population = us.Population(layers, torch.zeros(1, dtype=torch.int64), slope)
    again = us.from_module(population.to_module())
    assert again.slope == slope and again.shape == population.shape
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(again.layers, layers, strict=True))


def test_a_module_that_misleads_its_export_is_caught_by_its_outputs():
    class Misleading(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(x) if torch.compiler.is_exporting() else 2 * self.layer(x)

    with pytest.raises(us.UserError, match="the converted network differs from Misleading by"):
        us.from_module(Misleading().eval())


class Branching(nn.Module):
    """Computes something else where an input is large, small, negative or 0."""

    def __init__(self, otherwise):
        super().__init__()
        self.a, self.b, self.otherwise = nn.Linear(4, 5), nn.Linear(5, 2), otherwise

    def forward(self, x):
        h = F.relu(self.a(x))
        if self.otherwise(x.detach().numpy()):
            h = 2 * h
        return self.b(h)


@pytest.mark.parametrize(
    "otherwise",
    [
        lambda x: x.max() > 10,
        lambda x: x.max() > 100,
        lambda x: abs(x).max() < 0.5,
        lambda x: not x.any(),
        lambda x: x.max() < -0.5,
    ],
)
def test_a_branch_that_depends_on_the_data_is_refused(otherwise):
    torch.manual_seed(0)
    with pytest.raises(us.UserError, match="outputs of Branching depend on the data by a branch"):
        us.from_module(Branching(otherwise).eval(), torch.rand(8, 4) + 0.6)
    assert us.from_module(Branching(lambda x: False).eval()).sizes == (4, 5, 2)


def test_a_branch_that_the_trace_does_not_show_is_refused_by_the_outputs():
    class Quiet(Branching):
        def forward(self, x):
            large = 5 < x.detach().numpy().max() < 50  # neither at the scale of 1 nor at those of 100 and 0
            return self.b((2 if large else 1) * F.relu(self.a(x)) if large else F.relu(self.a(x)))

    torch.manual_seed(0)
    with pytest.raises(us.UserError, match=r"depend on the data by a branch.*with inputs times 10, its outputs differ"):
        us.from_module(Quiet(None).eval())


def test_half_precision_may_overflow_at_larger_scales():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).half().eval()
    with torch.no_grad():
        model[0].weight.mul_(300)
    assert us.from_module(model).sizes == (4, 5, 2)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (torch.ones(3, 4, dtype=torch.int64), r"inputs must be floating-point numbers.*got torch\.int64; convert"),
        (np.ones((3, 4), dtype=bool), "inputs must be floating-point numbers.*got bool"),
        (torch.ones(3, 4, device="meta"), "inputs is on the device meta, which has no numbers"),
        (
            torch.tensor([[0.0, 1.0, 2.0, 3.0], [0.0, float("nan"), 2.0, 3.0]]),
            r"inputs contains NaN.*first at \[1, 1\]",
        ),
        (np.full((2, 4), np.inf), r"inputs contains NaN or infinity, first at \[0, 0\]"),
        (np.array([["a", "b"]]), "inputs is an array of <U1, not of numbers"),
    ],
)
def test_inputs_that_are_no_finite_floating_point_numbers_are_refused(inputs, words):
    with pytest.raises(us.UserError, match=words):
        us.from_module(wide(nn.ReLU()), inputs)


def test_lines_come_back_as_they_went_in():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(2, 3, 5, padding=2), nn.BatchNorm1d(3), nn.ReLU(), nn.Conv1d(3, 4, 3, stride=2), nn.ReLU()
    )
    model = nn.Sequential(*model, nn.MaxPool1d(2), nn.Flatten(), nn.Linear(16, 2)).eval()
    again, x = us.from_module(model, image=(20,)).to_module(), torch.randn(5, 2, 20)
    torch.testing.assert_close(again(x), model(x))
    torch.testing.assert_close(again(x.unsqueeze(2)), model(x))
    for image in ((20,), (1, 20)):
        torch.testing.assert_close(us.from_module(again, image=image)(x.flatten(1))[0], model(x))


def other_norm(channels):
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.weight, 0.5, 2)
    nn.init.normal_(norm.bias)
    nn.init.normal_(norm.running_mean)
    return norm


@pytest.mark.parametrize(
    "model",
    {
        "zero padding": lambda: (nn.ZeroPad2d((1, 2, 0, 1)), nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU()),
        "zero padding in between": lambda: (
            *(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.ZeroPad2d(1), nn.Conv2d(3, 3, 3), nn.ReLU()),
        ),
        "two max poolings": lambda: (nn.Conv2d(2, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 1), nn.MaxPool2d(2)),
        "two average poolings": lambda: (nn.Conv2d(2, 3, 2), nn.ReLU(), nn.AvgPool2d(2), nn.AvgPool2d(2, 1)),
        "BatchNorm after max pooling": lambda: (nn.Conv2d(2, 3, 2), nn.ReLU(), nn.MaxPool2d(2), other_norm(3)),
        "BatchNorm after average pooling": lambda: (nn.Conv2d(2, 3, 2), nn.ReLU(), nn.AvgPool2d(2), other_norm(3)),
        "pooling before BatchNorm and ReLU": lambda: (nn.Conv2d(2, 3, 2), nn.MaxPool2d(2), other_norm(3), nn.ReLU()),
        "overlapping adaptive pooling": lambda: (nn.Conv2d(2, 3, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(3)),
    }.values(),
)
def test_poolings_and_padding_that_one_convolution_can_take_over(model):
    torch.manual_seed(0)
    x = torch.randn(6, 2, 7, 7)
    stack = nn.Sequential(*model(), nn.Flatten()).eval()
    whole = nn.Sequential(*stack, nn.Linear(stack(x).shape[1], 2)).eval()
    network = us.from_module(whole, x)
    torch.testing.assert_close(network(x.flatten(1))[0], whole(x))
    torch.testing.assert_close(network.to_module()(x), whole(x))
