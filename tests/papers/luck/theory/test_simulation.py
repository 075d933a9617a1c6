"""Simulation of the matrix dynamics (Tian et al. 2019, eq. 6): by hand, compiled against tensors, against SGD."""

import math

import numpy as np
import pytest
import torch

from understudy import data, students, teachers
from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.measures import modulation
from understudy.nets import Layer, Population, stack
from understudy.papers.luck.theory import simulation, simulation_cpu
from understudy.papers.luck.theory.overlap import angles, empirical, extended_weights
from understudy.papers.luck.theory.simulation import (
    expected_dynamics,
    lucky_pair,
    probe_students,
    simulate,
    step,
    unit_columns,
)

pytestmark = pytest.mark.usefixtures("one_thread")
F = torch.float64
RULES = ("rescaled", "free", "sgd")
rules = pytest.mark.parametrize("rule", RULES)


def _pair(sizes=(3, 4, 5), seeds=(1, 2), dtype=F, multiple=2, p=(1.0, 1.0)):
    teacher = unit_columns(sizes, seeds=seeds, dtype=dtype)
    return teacher, students.near(teacher, multiple=multiple, weights=p[0], fan_out=p[1])


def _parts(networks):
    return extended_weights(networks.layers[0]), networks.layers[1].weight


def test_teachers_have_unit_columns_of_five_values():
    teacher = unit_columns((10, 20, 30), seeds=[1, 2], dtype=F)
    w, v = _parts(teacher)
    assert (w.norm(dim=2) - 1).abs().max() < 1e-12
    assert (v.norm(dim=2) - 1).abs().max() < 1e-12
    for rows in (w.flatten(0, 1), v.flatten(0, 1)):
        for row in rows:
            assert len(row.abs().round(decimals=9).unique()) <= 3
    assert torch.equal(_parts(unit_columns((10, 20, 30), seeds=[2], dtype=F))[0][0], w[1])


def test_lucky_students_start_at_the_given_distances():
    teacher, made = lucky_pair(2, 3, 8, threshold=1.0, cosine=0.0, angle=0.01, missed=0.2, fan_out=0.5, seeds=[1, 5])
    off = angles(extended_weights(teacher.layers[0]), extended_weights(made.layers[0])[:, :2])
    assert (off <= 0.0101).all()
    assert (off > 0.001).all()
    tops = made.layers[1].weight
    assert torch.allclose((tops[:, :, :2] - teacher.layers[1].weight).norm(dim=1), torch.full((2, 2), 0.2, dtype=F))
    assert torch.allclose(tops[:, :, 2:].norm(dim=1), torch.full((2, 3), 0.5, dtype=F))


def test_a_step_by_hand():
    """One node each, one sample on which both are active: Ẇ = w* v v* − w v², V̇ = (w*·x)(w·x) v* − (w·x)² v."""
    w_star, w = torch.tensor([[[2.0, 1.0]]], dtype=F), torch.tensor([[[1.0, 0.0]]], dtype=F)
    v_star, v = torch.tensor([[[3.0]]], dtype=F), torch.tensor([[[0.5]]], dtype=F)
    x = torch.tensor([[[2.0, 1.0]]], dtype=F)
    moved_w, moved_v = step(w_star, v_star, w, v, x, 0.1, "free")
    assert moved_w[0, 0].tolist() == pytest.approx([1 + 0.1 * (2 * 1.5 - 0.25), 0.1 * 1.5])
    assert moved_v.item() == pytest.approx(0.5 + 0.1 * (5 * 2 * 3 - 4 * 0.5))
    scaled_w, scaled_v = step(w_star, v_star, w, v, x, 0.1, "rescaled")
    assert torch.allclose(scaled_w, moved_w / moved_w.norm())
    assert scaled_v.item() == pytest.approx(1.0)


def test_a_step_uses_the_matrices_of_theorem_2():
    teacher, student = _pair(seeds=[3])
    x = data.Gaussian(3, 1.0, 50, 1).training(4, dtype=F)
    wide = torch.cat((x, torch.ones(50, 1, dtype=F)), dim=1)
    (layer,) = modulation(teacher, student, x)
    (w_star, v_star), (w, v) = _parts(teacher), _parts(student)
    moved_w, moved_v = step(w_star, v_star, w, v, wide.unsqueeze(0), 1.0, "free")
    assert torch.allclose(moved_w - w, layer.h_star @ w_star - layer.h @ w, atol=1e-12)
    assert torch.allclose(moved_v - v, (layer.l_star @ v_star.mT - layer.l @ v.mT).mT, atol=1e-12)


def test_a_step_of_sgd_is_the_gradient():
    teacher, student = _pair()
    x = torch.stack([data.Gaussian(3, 1.0, 20, 1).training(seed, dtype=F) for seed in (5, 6)])
    (w_star, v_star), (w, v) = _parts(teacher), (part.requires_grad_() for part in _parts(student))
    wide = torch.cat((x, torch.ones(2, 20, 1, dtype=F)), dim=2)
    loss = 0.5 * ((wide @ w.mT).clamp_min(0) @ v.mT - teacher(x)).square().sum() / 20
    dw, dv = torch.autograd.grad(loss, (w, v))
    moved_w, moved_v = step(w_star, v_star, w.detach(), v.detach(), wide, 0.1, "sgd")
    assert torch.allclose(moved_w, w - 0.1 * dw)
    assert torch.allclose(moved_v, v - 0.1 * dv)


@rules
@pytest.mark.parametrize(("sizes", "batch"), [((3, 4, 5), 64), ((10, 9, 7), 64), ((2, 1, 1), 5), ((4, 3, 9), 130)])
def test_compiled_steps_equal_tensor_steps(rule, sizes, batch):
    teacher, start = _pair(sizes, seeds=(1, 2, 1), multiple=3)
    *_, fast = simulate(teacher, start, rule=rule, batch=batch, probes=[0, 3, 10])
    plain = simulation._advance_tensors(*_parts(teacher), start, rule, 0.05, batch, 0, 10)
    for one, other in zip(_parts(fast), _parts(plain), strict=True):
        assert torch.allclose(one, other, atol=1e-12)
    assert not torch.allclose(_parts(fast)[0], _parts(start)[0])


def test_inputs_equal_those_of_the_gaussian_source():
    x = np.ones((7, 4))
    simulation_cpu.draw_inputs(x, 2**40 + 5, 12)
    source = data.Gaussian(3, 1.0, 7, 1, fresh=True).training(2**40 + 5, 12, dtype=F)
    assert np.allclose(x[:, :3], source, atol=1e-14)
    assert (x[:, 3] == 1).all()
    drawn = normal(torch.tensor([2**40 + 5]), Stream.TRAIN, torch.tensor([[11], [12]]), 21)
    assert torch.allclose(drawn[1, 0].view(7, 3), source, atol=1e-14)


@rules
def test_a_network_does_not_depend_on_the_others_or_on_the_probes(rule):
    teacher, start = _pair(seeds=(4, 7, 9), dtype=torch.float32)
    *_, together = simulate(teacher, start, rule=rule, probes=[1, 5, 20])
    *_, alone = simulate(teacher[1], start[1], rule=rule, probes=[20])
    for one, other in zip(_parts(alone), _parts(together), strict=True):
        assert torch.equal(one[0], other[1])


def test_rescaled_columns_have_length_1_and_a_teacher_does_not_move():
    teacher, start = _pair(dtype=torch.float32)
    (w, v) = _parts(list(simulate(teacher, start, rule="rescaled", probes=[30]))[-1])
    assert (w.norm(dim=2) - 1).abs().max() < 1e-6
    assert (v.norm(dim=2) - 1).abs().max() < 1e-6
    for rule in RULES:
        (same,) = simulate(teacher, teacher, rule=rule, probes=[50])
        assert torch.allclose(_parts(same)[0], _parts(teacher)[0], atol=1e-5)


def test_networks_of_another_kind_are_refused():
    teacher, start = _pair()
    biased = teachers.distinct_rows((3, 4, 5), seeds=[1, 2], dtype=F)
    with pytest.raises(UserError, match="the teachers must have two layers, ReLU, hidden biases and no output bias"):
        next(simulate(biased, start, rule="sgd", probes=[1]))
    with pytest.raises(UserError, match="one student per teacher is needed"):
        next(simulate(teacher[0], start, rule="sgd", probes=[1]))


def test_a_reading_by_hand():
    top = torch.tensor([[[3.0, 0.0, 1.0], [4.0, 2.0, 0.0]]], dtype=F)
    weight = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.1]]], dtype=F)
    bias = torch.zeros(1, 3, dtype=F)
    seeds = torch.tensor([1])
    student = Population((Layer(weight, bias), Layer(top, None)), seeds)
    turned = torch.tensor([[[1.0, 1.0], [0.0, 1.0]]], dtype=F)
    teacher = Population((Layer(turned, bias[:, :2]), Layer(top[:, :, :2], None)), seeds)
    found = probe_students(teacher, student)
    assert found.cosine.item() == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert (found.near.item(), found.others.item()) == pytest.approx((3.5, 1.0))
    assert found.closest.tolist() == [[0, 1, 1]]


@pytest.mark.parametrize("top_down", [False, True])
def test_the_expected_dynamics_equal_those_of_many_samples(top_down):
    pair = lucky_pair(2, 1, 3, threshold=0.5, cosine=0.2, angle=0.3, missed=0.3, fan_out=0.5, seeds=[1])
    x = data.Gaussian(3, 1.0, 200_000, 1).training(9, dtype=F)
    overlaps = empirical(torch.cat((x, torch.ones(len(x), 1, dtype=F)), dim=1))
    closed = expected_dynamics(*pair, lr=0.2, steps=10, top_down=top_down)
    sampled = expected_dynamics(*pair, lr=0.2, steps=10, top_down=top_down, overlaps=overlaps)
    assert (closed.w - sampled.w).abs().max() < 0.01
    assert (closed.v - sampled.v).abs().max() < 0.01
    assert torch.allclose(closed.w.norm(dim=3), torch.ones(1, 11, 3, dtype=F))
    assert torch.equal(closed.v[:, 0], closed.v[:, -1]) != top_down


def test_batched_trajectories_equal_those_of_single_networks():
    pair = lucky_pair(2, 1, 4, threshold=1.0, cosine=0.0, angle=0.1, missed=0.1, fan_out=0.3, seeds=[1, 2, 3])
    path = expected_dynamics(*pair, lr=1.0, steps=5, top_down=True)
    alone = expected_dynamics(*(networks[2] for networks in pair), lr=1.0, steps=5, top_down=True)
    assert torch.allclose(path.w[2], alone.w[0], atol=1e-14)
    assert torch.allclose(path.v[2], alone.v[0], atol=1e-14)


def test_fan_outs_of_the_others_shrink_while_those_near_teachers_grow():
    teacher = unit_columns((10, 20, 30), seeds=range(1, 5))
    starts = stack([students.near(teacher, multiple=2, weights=w, fan_out=v) for w, v in ((10, 10), (1, 1), (5, 0))])
    both = stack([teacher] * 3)
    first, last = (probe_students(both, now) for now in simulate(both, starts, rule="rescaled", probes=[0, 1500]))
    assert (last.others < first.others).all()
    assert (last.near > first.near).all()
    left = (last.others / first.others).view(3, 4).mean(1)
    assert left[0] < left[1] < left[2]
