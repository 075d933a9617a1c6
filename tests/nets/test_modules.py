"""Modules of PyTorch as populations and back: the same outputs, and refusals by the name of the operation."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

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
models = pytest.mark.parametrize(("model", "size"), MODELS.values(), ids=MODELS)


@models
def test_outputs_are_those_of_the_module_also_after_a_round_trip_and_from_a_file(model, size, tmp_path):
    model, x = trained(model), torch.randn(20, *size)
    population = us.from_module(model, x)
    with torch.no_grad():
        wanted = model(x)
    found = population(x.flatten(1))
    torch.testing.assert_close(found[0], wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))

    us.save(population, tmp_path / "n.safetensors")
    stored = us.load(tmp_path / "n.safetensors")
    assert stored.shape == population.shape and torch.equal(stored(x.flatten(1)), found)

    again = us.from_module(population.to_module(), image=population.image)  # random images of this size
    assert again.shape == population.shape
    for one, other in zip((*population.layers, *population.norms), (*again.layers, *again.norms), strict=True):
        assert all(torch.equal(a, b) if a is not None else b is None for a, b in zip(one, other, strict=True))


@st.composite
def stacks(draw):
    """Convolutions with BatchNorm, activation and pooling in any order that is supported, then linear layers."""
    slope, side = draw(st.sampled_from([0.0, 0.1])), draw(st.integers(6, 9))
    parts, channels = [], draw(st.integers(1, 3))
    size = (channels, side, draw(st.integers(6, 9)))
    for _ in range(draw(st.integers(0, 2))):
        into, channels = channels, 2 * draw(st.integers(1, 2))
        groups = 2 if into % 2 == 0 and draw(st.booleans()) else 1
        kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
        parts.append(nn.Conv2d(into, channels, kernel, draw(st.integers(1, 2)), (1, 1), groups=groups))
        middle = [nn.LeakyReLU(slope) if slope else nn.ReLU()]
        middle.insert(draw(st.integers(0, 1)), nn.BatchNorm2d(channels)) if draw(st.booleans()) else None
        pool = draw(st.sampled_from([None, nn.MaxPool2d(2, 1), nn.AvgPool2d((1, 2), 1), nn.MaxPool2d(2, 1, 1)]))
        parts += [*middle, *([pool] if pool else [])]
    parts.append(nn.Flatten())
    nodes = int(nn.Sequential(*parts).eval()(torch.zeros(1, *size)).shape[1])
    above = (nn.Linear(nodes, 4), nn.BatchNorm1d(4), nn.LeakyReLU(slope) if slope else nn.ReLU(), nn.Linear(4, 2))
    return nn.Sequential(*parts, *above), size


@settings(max_examples=5 if settings().max_examples < 100 else 50)
@given(stacks(), st.integers(0, 99))
def test_any_stack_of_layers_has_the_outputs_of_its_module(drawn, seed):
    model, size = drawn
    model = trained(model, seed)
    x = torch.randn(4, *size)
    population = us.from_module(model, x)
    with torch.no_grad():
        wanted = model(x)
    torch.testing.assert_close(population(x.flatten(1))[0], wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))


def test_an_exported_program_needs_no_module():
    model = trained(copy.deepcopy(MODELS["functions"][0]))
    x = torch.randn(2, 3, 12, 12)
    program = torch.export.export(model, (x,))
    with torch.no_grad():
        torch.testing.assert_close(from_program(program)(x.flatten(1))[0], model(x), rtol=1e-5, atol=1e-5)


REFUSED = {
    "1 (GELU): the operation gelu": wide(nn.GELU()),
    "1 (Tanh): the operation tanh": wide(nn.Tanh()),
    "2 (LayerNorm): the operation layer_norm": wide(nn.ReLU(), nn.LayerNorm(5)),
    "3 (Softmax): the operation softmax": nn.Sequential(*wide(nn.ReLU()), nn.Softmax(-1)),
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


PICTURES_REFUSED = {
    "2 (AdaptiveAvgPool2d): adaptive pooling from [7, 7] to [2, 2] has kernels": pictures(
        nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 2)
    ),
    "2 (MaxPool2d): pooling with ceil_mode=True": pictures(
        nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(), nn.Linear(48, 2)
    ),
    "1 (AvgPool2d): stands before the activation": pictures(nn.AvgPool2d(7), nn.ReLU(), nn.Flatten(), nn.Linear(3, 2)),
    "3 (AvgPool2d): a second pooling": pictures(
        nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(3, 2)
    ),
    "3 (BatchNorm2d): BatchNorm after the pooling": pictures(
        nn.ReLU(), nn.MaxPool2d(7), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 2)
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
    with pytest.warns(UserWarning, match="Sequential is in training mode; it is read in evaluation mode"):
        us.from_module(model)
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
            return self.layer(x) if self.calls < 2 else 2 * self.layer(x)

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
    teacher = us.teachers.separated((4, 3, 2), seeds=[1, 2])
    x = torch.randn(5, 4)
    with torch.no_grad():
        torch.testing.assert_close(teacher.to_module(1)(x), teacher(x)[1])
    with pytest.raises(us.UserError, match="which must be between 0 and 1"):
        teacher.to_module(2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_precisions_are_kept_or_widened(dtype):
    population = us.from_module(wide(nn.ReLU()).to(dtype).eval())
    assert population.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
