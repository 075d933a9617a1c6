"""Gradients of every engine agree with autograd, for every activation, objective and depth, with and without biases."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support.engines import engines, supported_cases, to_device
from support.problems import OBJECTIVES, SLOPES, gaussians, optimisers, population, problem, start
from understudy.nets import Layer, Population
from understudy.training import SGD, CrossEntropy, Logistic, SquaredError
from understudy.training.engines import ENGINES
from understudy.training.objectives import label_targets, one_hot, predict_class
from understudy.training.problem import batch_indices

pytestmark = pytest.mark.usefixtures("one_thread")
RATES = (1.0, 0.25, 0.5)

ACTIVATIONS = {
    "relu": F.relu,
    "leaky-0.1": lambda x: F.leaky_relu(x, 0.1),
    "leaky-0.5": lambda x: F.leaky_relu(x, 0.5),
    "abs": torch.abs,
}
LOSSES = {
    "squared": lambda f, teacher: 0.5 * F.mse_loss(f, teacher, reduction="none").sum(1).mean(),
    "hard": lambda f, teacher: F.cross_entropy(f, teacher.argmax(1)),
    "soft": lambda f, teacher: F.cross_entropy(f, teacher.softmax(1)),
}


def autograd(students, which, x, teacher, activation, loss):
    """Compute the gradients of one network's parameters by torch, weight before bias."""
    parameters = [[nn.Parameter(p[which].clone()) for p in layer if p is not None] for layer in students.layers]
    h = x
    for i, layer in enumerate(parameters):
        h = F.linear(activation(h) if i else h, *layer)
    flat = [p for layer in parameters for p in layer]
    return torch.autograd.grad(loss(h, teacher), flat)


# A first step with momentum equals one without, but uses the code that computes the gradient before the update.
@supported_cases([(6, 9, 7, 8, 5, 4)[-depth - 1 :] for depth in (2, 3, 4, 5)], ("sgd", "momentum"))
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize("slope", SLOPES)
def test_one_step_follows_the_gradient_of_autograd(engine, device, sizes, kind, objective, bias, slope):
    students = population(sizes, 3, slope=SLOPES[slope], bias=bias)
    posed = problem(students, optimisers(batch=5, lr=RATES)[kind], OBJECTIVES[objective])
    state = start(posed, students.to(device))
    ENGINES[engine].run(to_device(posed, device), state, 3, 1)
    after = posed.packing.layers(tuple(block.cpu() for block in state.blocks))
    teachers = gaussians(1001, 3, 20, students.sizes[-1])
    for which, rate in enumerate(RATES):
        rows = batch_indices(students.seeds[which : which + 1], 3, 1, 5, 20)[0, 0]
        x, teacher = posed.inputs[which % 2, rows], teachers[2 - which, rows]
        expected = autograd(students, which, x, teacher, ACTIVATIONS[slope], LOSSES[objective])
        moved = [
            (old[which] - new[which]) / rate
            for before, now in zip(students.layers, after, strict=True)
            for old, new in zip(before, now, strict=True)
            if old is not None
        ]
        for ours, theirs in zip(moved, expected, strict=True):
            assert theirs.abs().max() > 1e-4
            torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


@engines
@pytest.mark.parametrize("slope", SLOPES.values(), ids=SLOPES)
def test_the_derivative_at_zero_is_one(engine, device, slope):
    # Tian 2020, sec. 3. f = v σ(w x) with w = 0, v = 2, x = 3 and target 1: ∂w = (0 − 1)·2·1·3 = −6.
    layers = tuple(Layer(torch.full((2, 1, 1), value, dtype=torch.float64), None) for value in (0.0, 2.0))
    students = Population(layers, torch.arange(2), slope)
    posed = problem(students, SGD(lr=1.0, batch=1), SquaredError(), samples=1)
    posed.inputs[:], posed.targets[:] = 3.0, 1.0
    state = start(posed, students.to(device))
    losses = ENGINES[engine].run(to_device(posed, device), state, 0, 1)
    assert state.blocks[0][:, 0].tolist() == [6.0, 6.0] and state.blocks[1][:, 0].tolist() == [2.0, 2.0]
    assert losses.tolist() == [[1.0], [1.0]]


def test_objectives_by_hand():
    output, teacher = torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3)
    squared = SquaredError()
    assert squared.losses(output, teacher) == 7 and squared.reported_loss(output, teacher) == pytest.approx(14 / 3)
    assert squared.residual(output, teacher).tolist() == [1, 2, 3] and squared.target(output) is output
    logits = torch.tensor([[0.0, math.log(3.0)]])
    hard, soft = CrossEntropy(), CrossEntropy(soft=True)
    assert hard.target(logits).tolist() == [[0, 1]]
    assert soft.target(logits)[0].tolist() == pytest.approx([0.25, 0.75])
    assert hard.losses(logits, hard.target(logits)).item() == pytest.approx(-math.log(0.75))
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert soft.reported_loss(logits, soft.target(logits)).item() == pytest.approx(entropy)
    assert hard.residual(logits, hard.target(logits))[0].tolist() == pytest.approx([0.25, -0.25])
    assert soft.residual(logits, soft.target(logits))[0].tolist() == pytest.approx([0, 0], abs=1e-7)
    logistic, outputs = Logistic(), torch.tensor([[math.log(3.0)], [-2.0], [0.0]])
    assert logistic.target(outputs).tolist() == [[1], [-1], [-1]]
    signs = torch.tensor([[1.0], [1.0], [-1.0]])
    losses = logistic.losses(outputs, signs)
    assert losses.tolist() == pytest.approx([math.log(4 / 3), math.log(1 + math.exp(2)), math.log(2)])
    assert torch.equal(logistic.reported_loss(outputs, signs), losses)
    slopes = [-0.25, -1 / (1 + math.exp(-2)), 0.5]
    assert logistic.residual(outputs, signs)[:, 0].tolist() == pytest.approx(slopes)
    # Equals the cross-entropy of two outputs, one of them fixed at 0.
    both, ours = torch.cat((torch.zeros(3, 1), outputs), 1), one_hot((signs[:, 0] > 0).long(), 2, torch.float32)
    assert hard.losses(both, ours).tolist() == pytest.approx(losses.tolist())
    far = logistic.losses(torch.tensor([[80.0]], dtype=torch.float64), torch.ones(1, 1))
    assert far.item() == pytest.approx(math.exp(-80)), "a large margin is not rounded away"
    assert label_targets(torch.tensor([0, 1]), 1, torch.float64).tolist() == [[-1], [1]]
    assert label_targets(torch.tensor([0, 2]), 3, torch.float64).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert predict_class(outputs).tolist() == [1, 0, 0] and predict_class(both).tolist() == [1, 0, 0]
    assert logistic.name == "logistic"
    assert [o.name for o in (squared, hard, soft)] == ["squared-error", "cross-entropy-hard", "cross-entropy-soft"]
