"""A source of inputs is described by plain values, and made again from its description."""

import json

import pytest
import torch

import understudy as us
from understudy._errors import UserError

TEACHER = us.teachers.distinct_rows((4, 3, 2), seeds=range(1, 3))
SOURCES = [
    us.data.Gaussian(4, std=0.5, train=10, evaluation=5, fresh=True),
    us.data.Uniform(4, train=10, evaluation=5),
    us.data.TeacherAware(TEACHER, train=10, evaluation=5, moved=(1.0, 2.0)),
    us.data.Augmented(us.data.Gaussian(4, train=10, evaluation=5), eps=0.1, nodes=9),
    us.data.TeacherLabels(us.data.Gaussian(4, train=10, evaluation=5), TEACHER),
    us.data.RandomLabels(us.data.Gaussian(4, train=10, evaluation=5), classes=3),
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
def test_a_source_survives_its_description_as_json(source):
    back = us.data.restore(json.loads(json.dumps(us.data.describe(source))), TEACHER)
    assert type(back) is type(source)
    for seed in (1, 2):
        assert torch.equal(back.training(seed, 2), source.training(seed, 2))
        assert torch.equal(back.evaluating(seed), source.evaluating(seed))
        if isinstance(source, us.data.Labelled):
            assert torch.equal(back.training_labels(seed), source.training_labels(seed))


def test_a_source_that_holds_tensors_has_no_description():
    assert us.data.describe(us.data.Fixed(torch.ones(3, 4), torch.ones(2, 4))) is None


def test_a_source_made_from_another_without_description_has_none():
    fixed = us.data.Fixed(torch.ones(3, 4), torch.ones(2, 4))
    assert us.data.describe(us.data.Augmented(fixed, eps=0.1, nodes=9)) is None


def test_a_source_of_a_class_of_the_users_has_no_description():
    class Gaussian(us.data.Gaussian):
        """A source of the same name with other samples."""

    assert us.data.describe(Gaussian(4)) is None


def test_an_unknown_kind_is_refused():
    with pytest.raises(UserError, match=r"understudy\.data has no source Poisson; upgrade understudy"):
        us.data.restore({"kind": "Poisson", "dim": 4}, TEACHER)
