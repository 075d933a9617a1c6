"""Gradients and Hessians of losses: by hand, against torch, and on quadratics whose spectrum is known."""

import math
from dataclasses import replace

import pytest
import torch

import understudy.measures as measures
from support.kinds import KINDS, made, module
from support.problems import gaussians
from understudy._errors import UserError
from understudy.nets import Layer, Population, Shape

kinds = pytest.mark.parametrize("shape", KINDS.values(), ids=KINDS)


def problem(shape, nets=2, samples=12):
    students = made(shape, nets, seed=1)
    x = gaussians(5, nets, samples, students.inputs, dtype=torch.float64)
    return students, x, made(shape, nets, seed=2)(x)


def single(weight, out, *, seed=0):
    """A network with one input, one hidden node without bias, and one output without bias."""
    layers = (Layer(torch.tensor([[[weight]]]).double(), None), Layer(torch.tensor([[[out]]]).double(), None))
    return Population(layers, torch.tensor([seed]))


def test_by_hand():
    # f = v w x at x = 2, f* = 1: residual r = 2 v w − 1, gradient 2 r (v, w), Hessian 4 (v², 2vw − 1/2, w²).
    network, x, target = single(3.0, 0.5), torch.tensor([[2.0]]).double(), torch.tensor([[[1.0]]]).double()
    torch.testing.assert_close(measures.loss_gradient(network, x, target), torch.tensor([[2.0, 12.0]]).double())
    assert measures.gradient_norm(network, x, target).item() == pytest.approx(math.hypot(2, 12))
    matrix = torch.tensor([[[1.0, 10.0], [10.0, 36.0]]]).double()
    torch.testing.assert_close(measures.hessian(network, x, target), matrix)
    both = torch.linalg.eigvalsh(matrix).flip(1)
    torch.testing.assert_close(measures.hessian_eigenvalues(network, x, target, 2), both)


@kinds
def test_the_gradient_is_that_of_the_module(shape):
    students, x, target = problem(shape)
    found = measures.loss_gradient(students, x, target)
    for e in range(len(students)):
        same = module(students, e).eval()
        (measures.squared_error(same(x[e]), target[e])).mean().backward()
        # Parameters of a module come layer by layer with their BatchNorm; ours has all norms last.
        kind = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
        owners = [part for part in same.modules() if not list(part.children())]
        ordered = [p for norm in (False, True) for part in owners if isinstance(part, kind) == norm
                   for p in part.parameters()]  # fmt: skip
        torch.testing.assert_close(found[e], torch.cat([p.grad.flatten() for p in ordered]))


@kinds
def test_the_hessian_is_symmetric_and_is_the_slope_of_the_gradient(shape):
    students, x, target = problem(shape, nets=1, samples=6)
    matrix = measures.hessian(students, x, target)[0]
    assert torch.equal(matrix, matrix.T)
    # Move the first weights of the top layer, in which no gate switches.
    moved = []
    for sign in (1, -1):
        top = students.layers[-1].weight.clone()
        top[0, 0, 0] += sign * 1e-5
        layers = (*students.layers[:-1], Layer(top, students.layers[-1].bias))
        moved.append(measures.loss_gradient(replace(students, layers=layers), x, target)[0])
    column = sum(part.numel() for layer in students.layers[:-1] for part in layer if part is not None)
    torch.testing.assert_close(matrix[:, column], (moved[0] - moved[1]) / 2e-5, atol=1e-8, rtol=1e-6)


def test_lanczos_finds_the_largest_eigenvalues_of_the_full_hessian():
    students, x, target = problem(Shape((4, 7, 3), 0.1), nets=3, samples=60)
    full = torch.linalg.eigvalsh(measures.hessian(students, x, target)).flip(1)
    torch.testing.assert_close(measures.hessian_eigenvalues(students, x, target, 3), full[:, :3])
    every = measures.hessian_eigenvalues(students, x, target, full.shape[1])
    torch.testing.assert_close(every, full)
    few = measures.hessian_eigenvalues(students, x, target, 3, steps=6)
    assert (few <= full[:, :3] + 1e-12).all()  # values of a few steps are never too large


def test_few_eigenvalues_are_left_where_a_teacher_is_matched():
    # At loss 0 the Hessian is JᵀJ: its rank is at most the numbers that the samples pin down.
    students = made(Shape((3, 5, 2), 0.0), 1)
    x = gaussians(5, 2, 3, dtype=torch.float64)
    matrix = measures.hessian(students, x, students(x))[0]
    assert torch.linalg.matrix_rank(matrix, atol=1e-10) <= 2 * 2
    found = measures.hessian_eigenvalues(students, x, students(x), 6)[0]
    assert found[:4].isfinite().all()
    assert found[4:].nan_to_num(0.0).abs().max() < 1e-10


def test_a_network_alone_has_the_same_bits():
    students, x, target = problem(Shape((4, 7, 3), 0.1), nets=3, samples=60)
    for measure in (measures.gradient_norm, measures.hessian_eigenvalues):
        together = measure(students, x, target)
        for e in range(3):
            assert torch.equal(measure(students[e], x[e], target[e : e + 1])[0], together[e])


def test_pieces_do_not_change_the_result(monkeypatch):
    students, x, target = problem(Shape((4, 7, 3), 0.1), samples=60)
    whole = [measure(students, x, target) for measure in (measures.gradient_norm, measures.hessian_eigenvalues)]
    monkeypatch.setattr("understudy.measures.curvature.PIECE", 70)
    cut = [measure(students, x, target) for measure in (measures.gradient_norm, measures.hessian_eigenvalues)]
    torch.testing.assert_close(cut, whole)


def test_another_loss():
    students, x, _ = problem(Shape((4, 7, 3), 0.1))
    target = torch.zeros(2, 12, 3, dtype=torch.float64)
    norm = measures.gradient_norm(students, x, target, lambda output, wanted: output.sum(-1))
    assert not torch.allclose(norm, measures.gradient_norm(students, x, target))
    # The gradient of Σ f in the output biases is 1 each.
    assert (measures.loss_gradient(students, x, target, lambda f, y: f.sum(-1))[:, -3:] == 1).all()


def test_the_gradient_of_noise_shrinks_with_the_samples():
    # At the teacher's weights, targets with noise of variance 1 give a gradient of squared length E‖J‖²/N on average.
    teacher = made(Shape((3, 4, 2), 0.1), 1)
    x = gaussians(5, 4_000, 3, dtype=torch.float64)
    squares = []
    for seed in range(30):
        noise = gaussians(100 + seed, 1, len(x), 2, dtype=torch.float64)
        squares.append(measures.gradient_norm(teacher, x, teacher(x) + noise).item() ** 2)
    # E over samples of the squared norm of each sample's Jacobian.
    jacobian = sum(
        measures.loss_gradient(teacher, x[i : i + 1], teacher(x[i : i + 1]) - unit).square().sum().item()
        for i in range(200)
        for unit in torch.eye(2, dtype=torch.float64).view(2, 1, 1, 2)
    )
    expected = jacobian / 200 / len(x)
    assert torch.tensor(squares).mean().item() == pytest.approx(expected, rel=0.4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"count": 3, "steps": 2}, "steps must be at least .* .3., got 2"),
    ],
)
def test_invalid_counts_are_refused(options, words):
    students, x, target = problem(Shape((4, 7, 3), 0.1))
    with pytest.raises(UserError, match=words):
        measures.hessian_eigenvalues(students, x, target, **options)
