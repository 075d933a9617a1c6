"""Off what gradient descent finds: risks of w_δ beside theory, one's own data, and what made-up runs decide."""

import math
import re

import numpy as np
import pytest
import torch

import understudy as us
from support.fake_gpu import FakeGpu
from support.images import needs
from support.made import Made
from understudy.errors import UserError
from understudy.papers.distillation.optimisation_bias.claims import DELTAS, claims, learners, steps
from understudy.papers.distillation.optimisation_bias.story import story
from understudy.papers.distillation.optimisation_bias.study import OptimisationBias
from understudy.papers.distillation.shared import Cell
from understudy.papers.distillation.theory.risk import Estimate, errors, held_out_risk
from understudy.papers.distillation.theory.soft_labels import angle, less_biased

needs_data = needs(lambda: us.data.Mnist(digits=(0, 1)), "MNIST")


def write(folder, name="own.npz", count=240, classes=("cat", "dog"), **arrays):
    """Inputs of 8 numbers whose first says the class, most of the time."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, 8))
    side = ((x[:, 0] + 0.3 * rng.normal(size=count)) > 0).astype(int)
    x[:, 0] *= 3
    held = {"x": x, "y": np.array(classes)[side]} | arrays
    np.savez(folder / name, **{key: value for key, value in held.items() if value is not None})
    return str(folder / name)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    study = OptimisationBias(data=write(tmp_path_factory.mktemp("own")), seeds=30, inputs=3, deltas=(0.0, 1.0, 5.0))
    return study, Made(study)


def test_risks_are_those_of_theory_on_the_same_sets(own):
    study, run = own
    task, fitted = study.given()
    assert fitted.classes == ("cat", "dog") and len(task.pool) == len(task.held_out) == 80
    seeds = range(1, 31)
    w = less_biased(task.inputs(seeds, 3), task.teacher, (0.0, 1.0, 5.0), seeds)
    for i, found in enumerate(learners(run)):
        wrong = errors(w[i], task.teacher, task.held_out)
        assert found.values["risk"] == pytest.approx(wrong.double().mean(-1).numpy())
        assert found.values["angle"] == pytest.approx(angle(w[i], task.teacher).numpy())
        assert found.means["risk"] == pytest.approx(held_out_risk(wrong))
        assert found.once == {"pool": 80, "held out": 80, "right": pytest.approx(fitted.right)}
    assert all(step.mean > 0 for step in steps(learners(run)))


def test_it_does_not_matter_how_many_sets_are_learned_from_together(own, monkeypatch):
    study, run = own
    monkeypatch.setattr("understudy.papers.distillation.optimisation_bias.study._TOGETHER", 7)
    for one, other in zip(learners(run), learners(Made(study)), strict=True):
        assert other.values["risk"] == pytest.approx(one.values["risk"])


def test_the_order_of_deltas_is_no_matter(own):
    study, run = own
    turned = OptimisationBias(**study.options() | {"deltas": (5.0, 0.0, 1.0)})
    for one, other in zip(learners(run), learners(Made(turned)), strict=True):
        assert one.parameters == other.parameters
        assert one.values["risk"] == pytest.approx(other.values["risk"])


def test_a_teacher_of_ones_own_needs_no_labels(tmp_path):
    file = write(tmp_path, y=None, w=np.arange(1.0, 9.0))
    study = OptimisationBias(data=file, seeds=2, inputs=3, deltas=(0.0,))
    task, fitted = study.given()
    assert fitted is None and task.teacher.tolist() == list(range(1, 9)) and len(task.pool) == 120
    told = story(study, Made(study))
    assert told.headline.startswith("On own.npz, from 3 inputs, the expected risk of w_δ is")
    assert "nan" not in " ".join([told.headline, *(n.value for n in told.numbers)]).lower()


def test_another_file_under_the_same_name_is_another_run(tmp_path):
    one = OptimisationBias(data=write(tmp_path), inputs=3).config()
    assert one == OptimisationBias(data=write(tmp_path), inputs=3).config()
    assert one != OptimisationBias(data=write(tmp_path, count=300), inputs=3).config()


def test_on_images_half_are_the_teachers_and_risks_are_on_the_test_images(mnist, monkeypatch):
    monkeypatch.setenv("UNDERSTUDY_DATA", str(mnist))
    study = OptimisationBias(digits=(3, 8), train=120, seeds=2, inputs=10, deltas=(0.0, 20.0))
    task, fitted = study.given()
    assert task.pool.shape == (60, 784) and len(task.held_out) == 1_010 + 974
    assert fitted.classes == (3, 8) and fitted.right == 1
    images = us.data.Mnist(mnist, (3, 8), train=120).training(0)
    assert np.allclose(task.pool, images[1::2])
    told = story(study, Made(study))
    assert told.headline.startswith("On the digits 3 and 8 of MNIST, from 10 inputs, the expected risk of w_δ is ")


@needs_data
def test_on_the_digits_0_and_1_risk_grows_with_delta():
    study = OptimisationBias(train=2_000, seeds=10, deltas=(0.0, 10.0, 30.0, 90.0))
    found = learners(Made(study))
    assert all(step.low > 0 for step in steps(found))
    assert found[0].means["risk"].mean < 0.005
    assert found[-1].means["risk"].mean > 0.2


def cells(risks, sets=100, spread=0.001):
    """Learners of these mean risks at δ = 0, 10, …, their risks all alike but for every other set."""
    found = []
    for i, risk in enumerate(risks):
        values = risk + spread * np.where((np.arange(sets) + i) % 2, 1, -1)
        means = {"risk": Estimate(risk, risk - spread, risk + spread, sets)}
        once = {"pool": 10.0, "held out": 5.0, "right": math.nan}
        networks = np.arange(sets) + i * sets
        found.append(Cell({"delta": 10.0 * i}, networks, {"risk": values, "angle": values}, means, once))
    return found


def decided(monkeypatch, risks, **options):
    monkeypatch.setattr("understudy.papers.distillation.optimisation_bias.claims.learners", lambda run: cells(risks))
    return claims(OptimisationBias(**options), None)


RISING = [0.0001, 0.01, 0.07, 0.13, 0.19, 0.24, 0.27, 0.3, 0.32, 0.34]


def test_a_risk_that_rises_at_every_step_holds(monkeypatch):
    (found,) = decided(monkeypatch, RISING)
    assert found.id == "K4" and found.holds and found.n == 100
    assert len(found.values) == 9 and found.low == 0.0
    assert min(found.values) == pytest.approx(0.0099)


@pytest.mark.parametrize("fourth", [0.07, 0.0701, 0.05])
def test_one_that_does_not_at_one_step_does_not_hold(monkeypatch, fourth):
    (found,) = decided(monkeypatch, [*RISING[:3], fourth, *RISING[4:]])
    assert not found.holds
    assert "from δ = 20 to 30" in found.measured


@pytest.mark.parametrize(
    "options", [{"seeds": 19}, {"inputs": 50}, {"deltas": DELTAS[:-1]}, {"digits": (3, 8)}, {"train": 500}]
)
def test_other_settings_decide_nothing(monkeypatch, options):
    assert decided(monkeypatch, RISING, **options) == []


def test_ones_own_data_decide_nothing(monkeypatch, tmp_path):
    assert decided(monkeypatch, RISING, data=write(tmp_path)) == []
    assert decided(monkeypatch, RISING, data=str(tmp_path), seeds=20, confidence=0.9)


@pytest.mark.parametrize(
    ("risks", "words"),
    [
        (RISING, "0.34 (0.339 to 0.341) at δ = 90, and higher at each δ than at the one before."),
        ([0.1, 0.2, 0.15], "0.15 (0.149 to 0.151) at δ = 20, but not higher from δ = 10 to 20."),
        ([0.1, 0.1], "at δ = 10, but not higher from δ = 0 to 10."),
        ([0.1, 0.2], "0.2 (0.199 to 0.201) at δ = 10."),
        ([0.1], "the expected risk of w_δ is 0.1 (0.099 to 0.101) at δ = 0."),
    ],
)
def test_the_headline_is_true_whatever_comes_out(monkeypatch, risks, words):
    monkeypatch.setattr("understudy.papers.distillation.optimisation_bias.story.learners", lambda run: cells(risks))
    assert story(OptimisationBias(), None).headline.endswith(words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"inputs": 0}, "--inputs: 0 was given; allowed is a whole number from 1"),
        ({"deltas": ()}, "--deltas: no value was given"),
        ({"deltas": (-1.0,)}, "--deltas: -1.0 was given; allowed is a number from 0"),
        ({"deltas": (1.0, 1.0)}, "--deltas: 1 1 was given; name each value once"),
        ({"digits": (0, 1, 2)}, "--digits: 0 1 2 was given; allowed are two different digits from 0 to 9"),
        ({"digits": (0,)}, "--digits: 0 was given; allowed are two different digits"),
        ({"digits": (3, 3)}, "--digits: 3 3 was given; name each value once"),
        ({"digits": (0, 10)}, "--digits: 0 10 was given; allowed are two different digits"),
        ({"train": -1}, "--train: -1 was given; allowed is a whole number from 0"),
        ({"confidence": 0.0}, "--confidence: 0 was given"),
    ],
)
def test_what_cannot_be_is_refused_in_words(options, words):
    with pytest.raises(UserError) as refused:
        OptimisationBias(**options)
    assert words in str(refused.value)


def refused(**options):
    with pytest.raises(UserError) as error:
        OptimisationBias(**options).pieces()
    return str(error.value)


def test_without_images_it_says_what_to_download_where(tmp_path):
    words = refused(data=str(tmp_path))
    assert words.startswith("--data: ")
    assert re.search(r"download train-images-idx3-ubyte\.gz .* from https://\S+ into the folder", words)


def test_files_that_cannot_be_are_refused_in_words(tmp_path, mnist):
    three = write(tmp_path, "three.npz", y=np.arange(240) % 3)
    assert "labels must have two classes, got 3 classes (0, 1, 2)" in refused(data=three, inputs=3)
    one = write(tmp_path, "one.npz", y=np.zeros(240))
    assert "labels must have two classes, got 1 class" in refused(data=one, inputs=3)
    neither = write(tmp_path, "neither.npz", y=None)
    assert "neither y nor w" in refused(data=neither, inputs=3)
    whole = write(tmp_path)
    words = (
        "--inputs: 8 was given; allowed is up to 7: there are 80 to draw from, and fewer are needed than an input has"
    )
    assert words in refused(data=whole, inputs=8)
    assert "--inputs: 100 was given; allowed is up to 50" in refused(data=str(mnist), train=100)


def test_learners_are_computed_on_the_card_that_is_given(own, monkeypatch):
    study, run = own
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with FakeGpu() as card:
        there = learners(Made(OptimisationBias(**study.options() | {"device": "cuda"})))
    assert card.calls > 50
    for one, other in zip(there, learners(run), strict=True):
        assert one.values["risk"] == pytest.approx(other.values["risk"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card")
def test_learners_on_a_card_are_those_of_the_cpu(own):
    study, _ = own
    there, here = (
        learners(Made(OptimisationBias(**study.options() | {"device": device}))) for device in ("cuda", "cpu")
    )
    for one, other in zip(there, here, strict=True):
        assert one.values["angle"] == pytest.approx(other.values["angle"], rel=1e-6)
        assert one.values["risk"] == pytest.approx(other.values["risk"], abs=0.02)
