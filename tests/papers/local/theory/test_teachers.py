"""Random teachers of Zhou, Ge & Jin 2021 (assumptions 1 and 2), and teachers that are rejected."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy._errors import UserError
from understudy.papers.local.theory.geometry import least_angle
from understudy.papers.local.theory.teachers import random_teachers, validate_teachers

pytestmark = pytest.mark.usefixtures("one_thread")
seeds = st.integers(0, 10**6)


def _tensor(*rows):
    return torch.tensor([rows], dtype=torch.float64)


@given(
    seeds,
    st.sampled_from(
        [
            (3, 5, 1.0),
            (2, 2, math.pi / 2),
            (3, 2, math.pi / 3),
            (5, 5, math.pi / 2),
            (6, 3, 1.1),
            (20, 50, 1.2),
            (1, 1, 0.5),
            (10, 4, 0.6),
        ]
    ),
)
def test_random_teachers_are_separated(seed, case):
    r, d, separation = case
    teachers = random_teachers(r, d, [seed, seed + 1], separation=separation, w_min=0.5, w_max=2.0)
    assert teachers.shape == (2, r, d)
    assert float(least_angle(teachers).min()) >= separation * (1 - 1e-8)
    lengths = teachers.norm(dim=-1)
    assert float(lengths.min()) >= 0.5 * (1 - 1e-12) and float(lengths.max()) <= 2 * (1 + 1e-12)
    validate_teachers(teachers)
    assert torch.equal(teachers[1], random_teachers(r, d, [seed + 1], separation=separation, w_min=0.5, w_max=2.0)[0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: validate_teachers(_tensor([1.0, 0.0], [0.0, 0.0])), "teacher neuron 1 is zero: remove it"),
        (
            lambda: validate_teachers(_tensor([1.0, 0.5], [0.0, 1.0], [-2.0, -1.0])),
            r"teacher neurons 0 and 2 are parallel up to sign, which with \|·\| is one neuron",
        ),
        (
            lambda: validate_teachers(torch.cat([_tensor([1.0, 0.5]), _tensor([0.0, 0.0])])),
            "teacher neuron 0 of network 1 is zero",
        ),
        (lambda: validate_teachers(_tensor([math.nan, 1.0])), "weights that are not finite"),
        (
            lambda: random_teachers(3, 2, [1], separation=1.2),
            "3 lines in 2 dimensions cannot be separated by 1.2: the maximum is 1.047",
        ),
        (lambda: random_teachers(2, 1, [1]), "2 lines in 1 dimensions cannot be separated"),
        (lambda: random_teachers(2, 3, [1], separation=1.6), "separation must be between 0 and π/2 = 1.571, got 1.6"),
        (lambda: random_teachers(2, 3, [1], w_min=2.0), "0 < w_min ≤ w_max < ∞, got w_min = 2 and w_max = 1"),
        (lambda: random_teachers(0, 3, [1]), "at least 1 neuron and 1 input, got 0 neurons and 3 inputs"),
        (
            lambda: random_teachers(7, 3, [1], separation=1.06),
            "found no 7 lines in 3 dimensions at angles of 1.06 or more",
        ),
    ],
)
def test_invalid_teachers_are_rejected(call, words):
    with pytest.raises(UserError, match=words):
        call()
