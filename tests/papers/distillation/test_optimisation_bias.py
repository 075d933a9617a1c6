"""The study `optimisation-bias`: risks of w_δ against theory, a user's own data, verdicts of made-up runs."""

import re

import numpy as np
import pyarrow as pa
import pytest
import torch

import understudy as us
from support.fake_gpu import FakeGpu
from support.images import needs
from support.made import computed_run
from support.runs import made_run
from understudy._errors import UserError
from understudy.papers.distillation.optimisation_bias.claims import claims, risk_steps
from understudy.papers.distillation.optimisation_bias.story import story
from understudy.papers.distillation.optimisation_bias.study import OptimisationBias
from understudy.papers.distillation.shared import estimates, read_settings
from understudy.papers.distillation.theory.risk import errors, held_out_risk
from understudy.papers.distillation.theory.soft_labels import angle, less_biased
from understudy.store.units import read_units, unit_array

needs_data = needs(lambda: us.data.Mnist(digits=(0, 1)), "MNIST")


def write(folder, name="own.npz", count=240, classes=("cat", "dog"), **arrays):
    """Inputs of 8 numbers, the first of which mostly determines the class."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, 8))
    side = ((x[:, 0] + 0.3 * rng.normal(size=count)) > 0).astype(int)
    x[:, 0] *= 3
    arrays = {"x": x, "y": np.array(classes)[side]} | arrays
    np.savez(folder / name, **{key: value for key, value in arrays.items() if value is not None})
    return str(folder / name)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    study = OptimisationBias(data=write(tmp_path_factory.mktemp("own")), seeds=30, inputs=3, deltas=(0.0, 1.0, 5.0))
    return study, computed_run(study)


def by_delta(run, column="risk"):
    """[delta, seed] of a column of the sets."""
    return unit_array(read_units(run, "sets"), column, "delta seed")


def test_risks_are_those_of_theory_on_the_same_sets(own):
    study, run = own
    task = study.task()
    assert len(task.pool) == len(task.held_out) == 80
    seeds = range(1, 31)
    w = less_biased(task.inputs(seeds, 3), task.teacher, (0.0, 1.0, 5.0), seeds)
    means = estimates(read_settings(run), "risk", "delta")
    assert means["delta"].values.tolist() == [0.0, 1.0, 5.0]
    for i in range(3):
        wrong = errors(w[i], task.teacher, task.held_out)
        assert by_delta(run)[i].values == pytest.approx(wrong.double().mean(-1).numpy())
        assert by_delta(run, "angle")[i].values == pytest.approx(angle(w[i], task.teacher).numpy())
        wanted = held_out_risk(wrong)
        assert [means[end][i].item() for end in ("mean", "low", "high")] == pytest.approx(list(wanted[:3]))
    for row in read_settings(run).to_pylist():
        assert (row["pool"], row["held out"], row["right"]) == (80, 80, pytest.approx(task.right))
    assert all(step.mean > 0 for step in risk_steps(by_delta(run)))


def test_the_number_of_sets_learned_from_together_does_not_matter(own, monkeypatch):
    study, run = own
    monkeypatch.setattr("understudy.papers.distillation.optimisation_bias.study._TOGETHER", 7)
    assert by_delta(computed_run(study)).values == pytest.approx(by_delta(run).values)


def test_the_order_of_deltas_does_not_matter(own):
    study, run = own
    turned = by_delta(computed_run(OptimisationBias(**study.options() | {"deltas": (5.0, 0.0, 1.0)})))
    assert turned["delta"].values.tolist() == by_delta(run)["delta"].values.tolist()
    assert turned.values == pytest.approx(by_delta(run).values)


def test_a_users_teacher_needs_no_labels(tmp_path):
    file = write(tmp_path, y=None, w=np.arange(1.0, 9.0))
    study = OptimisationBias(data=file, seeds=2, inputs=3, deltas=(0.0,))
    task = study.task()
    assert task.right is None and task.teacher.tolist() == list(range(1, 9)) and len(task.pool) == 120
    found = story(study, computed_run(study))
    assert found.headline.startswith("On own.npz, from 3 inputs, the expected risk of w_δ is")
    assert "nan" not in " ".join([found.headline, *(n.value for n in found.numbers)]).lower()


def test_a_changed_file_gets_another_run_folder(tmp_path):
    one = OptimisationBias(data=write(tmp_path), inputs=3).config()
    assert one == OptimisationBias(data=write(tmp_path), inputs=3).config()
    assert one != OptimisationBias(data=write(tmp_path, count=300), inputs=3).config()


def test_half_of_the_images_train_the_teacher_and_risks_are_on_the_test_images(mnist, monkeypatch):
    monkeypatch.setenv("UNDERSTUDY_DATA", str(mnist))
    study = OptimisationBias(digits=(3, 8), train=120, seeds=2, inputs=10, deltas=(0.0, 20.0))
    task = study.task()
    assert task.pool.shape == (60, 784) and len(task.held_out) == 1_010 + 974
    assert task.right == 1
    images = us.data.Mnist(mnist, (3, 8), train=120).training(0)
    assert np.allclose(task.pool, images[1::2])
    found = story(study, computed_run(study))
    assert found.headline.startswith("On the digits 3 and 8 of MNIST, from 10 inputs, the expected risk of w_δ is ")


@needs_data
def test_on_the_digits_0_and_1_risk_grows_with_delta():
    run = computed_run(OptimisationBias(train=2_000, seeds=10, deltas=(0.0, 10.0, 30.0, 90.0)))
    assert all(step.low > 0 for step in risk_steps(by_delta(run)))
    mean = estimates(read_settings(run), "risk", "delta")["mean"]
    assert mean[0] < 0.005
    assert mean[-1] > 0.2


def made(risks, sets=100, spread=0.001):
    """A run of learners with these mean risks at δ = 0, 10, …; risks alternate around their mean."""
    rows, settings = [], []
    for i, risk in enumerate(risks):
        values = risk + spread * np.where((np.arange(sets) + i) % 2, 1, -1)
        columns = {"delta": [10.0 * i] * sets, "seed": range(1, sets + 1), "risk": values, "angle": values}
        rows.append(pa.table(columns))
        means = {"mean risk": risk, "low risk": risk - spread, "high risk": risk + spread}
        settings.append({"delta": 10.0 * i, "pool": 10.0, "held out": 5.0} | means)
    return made_run([], sets=pa.concat_tables(rows), settings=pa.Table.from_pylist(settings))


def decided(risks, **options):
    return claims(OptimisationBias(**options), made(risks))


RISING = [0.0001, 0.01, 0.07, 0.13, 0.19, 0.24, 0.27, 0.3, 0.32, 0.34]


def test_a_risk_that_rises_at_every_step_holds():
    (found,) = decided(RISING)
    assert found.id == "K4" and found.holds and found.n == 100
    assert len(found.values) == 9 and found.low == 0.0
    assert min(found.values) == pytest.approx(0.0099)


@pytest.mark.parametrize("fourth", [0.07, 0.0701, 0.05])
def test_a_risk_that_does_not_rise_at_one_step_does_not_hold(fourth):
    (found,) = decided([*RISING[:3], fourth, *RISING[4:]])
    assert not found.holds
    assert "from δ = 20 to 30" in found.measured


@pytest.mark.parametrize(
    "options", [{"seeds": 19}, {"inputs": 50}, {"deltas": (0.0, 10.0)}, {"digits": (3, 8)}, {"train": 500}]
)
def test_other_settings_decide_nothing(options):
    assert decided(RISING, **options) == []


def test_a_users_data_decide_nothing(tmp_path):
    assert decided(RISING, data=write(tmp_path)) == []
    assert decided(RISING, data=str(tmp_path), seeds=20, confidence=0.9)


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
def test_the_headline_is_true_for_other_risks(risks, words):
    assert story(OptimisationBias(), made(risks)).headline.endswith(words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"inputs": 0}, "--inputs must be at least 1, got 0"),
        ({"deltas": ()}, "--deltas needs at least one value"),
        ({"deltas": (-1.0,)}, "--deltas must be at least 0, got -1"),
        ({"deltas": (1.0, 1.0)}, "--deltas takes each value once, got 1 1"),
        ({"digits": (0, 1, 2)}, "--digits must be two different digits, got 0 1 2"),
        ({"digits": (0,)}, "--digits must be two different digits, got 0"),
        ({"digits": (3, 3)}, "--digits takes each value once, got 3 3"),
        ({"digits": (0, 10)}, "--digits must be at least 0 and at most 9, got 10"),
        ({"train": -1}, "--train must be at least 0, got -1"),
        ({"confidence": 0.0}, "--confidence must be above 0 and below 1, got 0"),
    ],
)
def test_options_that_cannot_work_are_refused(options, words):
    with pytest.raises(UserError) as refused:
        OptimisationBias(**options)
    assert words in str(refused.value)


def refused(**options):
    with pytest.raises(UserError) as error:
        list(OptimisationBias(**options).pieces())
    return str(error.value)


def test_without_images_the_error_names_the_download_and_its_folder(tmp_path):
    words = refused(data=str(tmp_path))
    assert words.startswith("--data: ")
    assert re.search(r"download train-images-idx3-ubyte\.gz .* from https://\S+ into the folder", words)


def test_files_that_cannot_be_used_are_refused(tmp_path, mnist):
    three = write(tmp_path, "three.npz", y=np.arange(240) % 3)
    assert "labels must have two classes, got 3 classes (0, 1, 2)" in refused(data=three, inputs=3)
    one = write(tmp_path, "one.npz", y=np.zeros(240))
    assert "labels must have two classes, got 1 class" in refused(data=one, inputs=3)
    neither = write(tmp_path, "neither.npz", y=None)
    assert "neither y nor w" in refused(data=neither, inputs=3)
    whole = write(tmp_path)
    words = "--inputs must be at most 7, got 8: sets are drawn from 80 inputs, and with as many as the dimension 8"
    assert words in refused(data=whole, inputs=8)
    assert "--inputs must be at most 50, got 100" in refused(data=str(mnist), train=100)


def test_learners_are_computed_on_the_chosen_gpu(own, monkeypatch):
    study, run = own
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with FakeGpu() as gpu:
        there = computed_run(OptimisationBias(**study.options() | {"device": "cuda"}))
    assert gpu.calls > 50
    assert by_delta(there).values == pytest.approx(by_delta(run).values)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_learners_on_a_gpu_are_those_of_the_cpu(own):
    study, run = own
    there = computed_run(OptimisationBias(**study.options() | {"device": "cuda"}))
    assert by_delta(there, "angle").values == pytest.approx(by_delta(run, "angle").values, rel=1e-6)
    assert by_delta(there).values == pytest.approx(by_delta(run).values, abs=0.02)
