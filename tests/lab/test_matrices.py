"""H* and β* are measured from the weights that a run saved, on the samples of each network, in the teacher's order."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy import data, students, teachers
from understudy._errors import UserError
from understudy.lab.matrices import MATRICES, _select, matrix_images, measure_modulation
from understudy.measures import Correlation
from understudy.measures.modulation import modulation

DENSE, IMAGE = data.Gaussian(5, evaluation=300), data.Gaussian(36, evaluation=20)


def groups(seeds, multiple=2.0, image=False, norm=None, sizes=(4, 3)):
    """Teachers, students before training, and students after it: sums of the first and other initial weights."""
    wide = (1 if image else 5, *sizes, 2)
    how = {"seeds": seeds, "unit": False, "dtype": torch.float64} | ({"image": (6, 6)} if image else {})
    teacher = teachers.distinct_rows(wide, **how)
    start = students.like_linear(teacher, multiple=multiple, norm=norm)
    other = students.like_linear(dataclasses.replace(teacher, seeds=teacher.seeds + 50), multiple=multiple, norm=norm)
    between = zip(start.layers, other.layers, strict=True)
    layers = tuple(type(a)(a.weight + b.weight, a.bias - b.bias) for a, b in between)
    return teacher, start, dataclasses.replace(start, layers=layers)


def run_of(*each, epochs=3):
    weights = dict(zip(("teacher", "epoch.0", f"epoch.{epochs}"), zip(*each, strict=True), strict=True))
    return SimpleNamespace(epochs=np.arange(epochs + 1), weights=lambda who: list(weights[who]))


def by_hand(matrix, rho):
    """Match pairs by correlation, the highest first and every student once; then order rows as the teacher's nodes."""
    left, partner = rho.clone(), {}
    for _ in range(len(rho)):
        j, k = divmod(int(left.argmax()), rho.shape[1])
        partner[j] = k
        left[j], left[:, k] = -2.0, -2.0
    order = [partner[j] for j in range(len(rho))]
    return order, matrix[order], float(matrix[order].diagonal().square().sum() / matrix.square().sum())


@pytest.mark.parametrize("image", [False, True], ids=["fc", "cnn"])
@pytest.mark.parametrize("norm", [None, "after"])
def test_an_image_is_the_reordered_matrix_of_the_named_network_on_its_own_samples(image, norm):
    source, seeds = (IMAGE, [7, 9, 8]) if image else (DENSE, [7, 9, 8])
    wanted = groups(seeds, image=image, norm=norm)
    run = run_of(groups([1, 2], 3.0), wanted)
    found = measure_modulation(run, [3], lambda: source)
    assert found.networks.tolist() == [3] and found.diagonal.shape == (1, 2, 2, 2)
    teacher, *both = (population[1] for population in wanted)
    count = 16 if image else 256
    assert found.over == (f"{count} evaluation samples" + " at all positions" * image)
    x = source.evaluating(9, dtype=torch.float64)[:count]
    for time, student in enumerate(both):
        parts = modulation(teacher, student, x, ("h_star", "beta_star"))
        for layer, part in enumerate(parts):
            correlation = Correlation()
            correlation.update(teacher.activations(x).hidden[layer], student.activations(x).hidden[layer])
            for i, matrix in enumerate((part.h_star, part.beta_star)):
                order, rows, share = by_hand(matrix[0], correlation.result()[0])
                image_of = found.shown[layer][2 * i + time]
                assert image_of.student[: len(order)].tolist() == order
                assert sorted(image_of.student) == list(range(2 * len(order)))
                np.testing.assert_allclose(image_of.values[: len(order)], rows.numpy(), rtol=1e-9)
                assert image_of.diagonal == pytest.approx(share) == found.diagonal[0, layer, i, time]


def test_several_networks_have_the_diagonals_that_each_has_alone():
    run = run_of(groups([1, 2, 3]))
    every = measure_modulation(run, np.array([0, 2]), lambda: DENSE)
    for i, network in enumerate((0, 2)):
        alone = measure_modulation(run, [network], lambda: DENSE)
        np.testing.assert_array_equal(every.diagonal[i], alone.diagonal[0])
    first = measure_modulation(run, [0], lambda: DENSE)
    np.testing.assert_array_equal(every.shown[1][3].values, first.shown[1][3].values)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_network_numbers_count_through_all_groups(sizes, draw):
    every = [SimpleGroup(range(sum(sizes[:g]), sum(sizes[: g + 1]))) for g in range(len(sizes))]
    group = draw.draw(st.sampled_from(every))
    some = draw.draw(st.lists(st.sampled_from(group.networks), min_size=1, unique=True))
    assert _select(every, np.array(some)) == some


class SimpleGroup:
    """A group whose networks are their numbers."""

    def __init__(self, networks):
        self.networks = list(networks)

    def __len__(self):
        return len(self.networks)

    def __getitem__(self, places):
        assert all(place >= 0 for place in places)
        return [self.networks[place] for place in places]


# Runs without matrices


@pytest.mark.parametrize("multiple", [0.5, 1.0])
def test_fewer_students_than_teacher_nodes_give_no_matrices(multiple):
    found = measure_modulation(run_of(groups([1], multiple, sizes=(4, 6))), [0], lambda: DENSE)
    assert (found is None) == (multiple < 1)


def test_missing_data_gives_no_matrices():
    def source():
        raise UserError("--data nowhere: there is no such folder")

    assert measure_modulation(run_of(groups([1])), [0], source) is None


# The figure


def test_the_caption_states_the_shares_on_the_diagonal_before_and_after():
    teacher, start, end = groups([1])
    for first, last in ((start, end), (end, start)):
        found = measure_modulation(run_of((teacher, first, last)), [0], lambda: DENSE)
        (figure,) = matrix_images(found, "FC, 2×", "modulation-fc")
        assert figure.name == "modulation-fc" and figure.source == "S2 fig. 11"
        assert figure.kind.columns == ("H* before", "H* after", "β* before", "β* after")
        assert figure.kind.network == 0 and len(figure.kind.cells) == 2
        means = [np.mean([row[column].diagonal for row in figure.kind.cells]) for column in range(4)]
        assert "network 0 (FC, 2×), over 256 evaluation samples." in figure.caption
        for i, matrix in enumerate(MATRICES):
            assert f"from {means[2 * i]:.1%} to {means[2 * i + 1]:.1%} in {matrix}" in figure.caption
        assert figure.kind.page()["data"] and figure.kind.paper().axes
