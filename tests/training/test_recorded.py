"""Metrics recorded on request: those of the measures, the same alone, together and resumed, and planned."""

import re

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import understudy as us
from support.commands import Said
from training.test_autograd import Sorted
from training.test_training import assert_same, rows_of
from understudy import measures, teachers
from understudy import students as starts
from understudy._errors import TooLargeError, UserError
from understudy._recorded import EIGENVALUES, RECORDABLE
from understudy.data import Gaussian
from understudy.lab.execute import execute
from understudy.lab.training import disk_space
from understudy.nets import Layer, Population
from understudy.papers.specialization.two_layer.study import TwoLayer
from understudy.training import SGD, CrossEntropy, Group, SquaredError, Training
from understudy.training.engines import ENGINES
from understudy.training.plan import rank_bytes
from understudy.training.records import METRICS, concatenate

DATA = Gaussian(dim=4, train=60, evaluation=50)
TEACHER = teachers.distinct_rows((4, 3, 2), seeds=[1, 2, 3])
STUDENTS = starts.gaussian(TEACHER, multiple=2, scale=0.3)
DEEP = teachers.distinct_rows((4, 3, 5, 2), seeds=[1, 2, 3])
CASES = {
    "two-layer": (TEACHER, STUDENTS, SquaredError()),
    "soft": (TEACHER, STUDENTS, CrossEntropy(soft=True)),
    "deep": (DEEP, starts.like_linear(DEEP, multiple=2), SquaredError()),
    "batch-norm": (DEEP, starts.like_linear(DEEP, multiple=2, norm="after"), SquaredError()),
}


def trained(case="two-layer", epochs=2, record=RECORDABLE, which=slice(None), **options):
    teacher, students, objective = CASES[case]
    optimiser = SGD((0.05, 0.02, 0.1)[which], batch=8)
    options = {"steps": 30, "objective": objective} | options
    places = list(range(3))[which]
    return us.train(students[places], teacher[places], DATA, optimiser, epochs=epochs, record=record, **options)


@pytest.mark.parametrize("case", CASES)
def test_recorded_metrics_are_those_of_the_measures(case):
    teacher, _, objective = CASES[case]
    run = trained(case, pairs=True)
    for i, seed in enumerate((1, 2, 3)):
        student = run.students[i].to(dtype=torch.float64)
        x = DATA.evaluating(seed, dtype=torch.float32).double()
        target = objective.target(teacher[i].to(dtype=torch.float64)(x)[0])
        norm = measures.gradient_norm(student, x, target, objective.losses).item()
        assert run.array("gradient_norm", "network epoch")[i, -1].item() == pytest.approx(norm, rel=1e-10)
        expected = measures.hessian_eigenvalues(student, x, target, 5, objective.losses)[0]
        found = [run.array(name, "network epoch")[i, -1].item() for name in EIGENVALUES]
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    for layer in range(len(teacher.sizes) - 2):
        rho = torch.from_numpy(np.stack([run.pairs(i, layer) for i in range(3)]))
        counts = [measures.students_per_teacher(measures.best_teachers(r), r.shape[1]).double().mean(1) for r in rho]
        given = run.array("students_per_teacher", "network epoch", layer=layer)
        np.testing.assert_allclose(given, torch.stack(counts))
        for name, measure in (("mean_rank", measures.mean_rank), ("median_rank", measures.median_rank)):
            np.testing.assert_allclose(run.array(name, "network epoch", layer=layer), measure(rho.double()), atol=1e-12)


@pytest.mark.parametrize("case", ["two-layer", "deep"])
def test_recorded_metrics_do_not_depend_on_the_batch_composition(case):
    together = trained(case)
    for i in range(3):
        alone = trained(case, which=slice(i, i + 1))
        assert_same(rows_of(together.metrics, i), rows_of(alone.metrics, 0))


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "resident"])
def test_recorded_metrics_are_recorded_with_every_engine_of_the_cpu_and_resumed(engine):
    names = {"gradient_norm", "hessian_eigenvalues", "students_per_teacher"}

    def begin():
        return Training([Group(STUDENTS, TEACHER, DATA)], SGD(0.05, batch=8), steps=6, engine=engine, record=names)

    whole, left = begin(), begin()
    records = [whole.probe().metrics]
    left.probe()
    for _ in range(2):
        whole.advance()
        records.append(whole.probe().metrics)
    left.advance()
    resumed = begin()
    resumed.load_state_dict({name: tensor.clone() for name, tensor in left.state_dict().items()})
    again = [records[0], resumed.probe().metrics]
    resumed.advance()
    again.append(resumed.probe().metrics)
    one, other = (concatenate(each, METRICS) for each in (records, again))
    assert_same(one, other)
    assert {"gradient_norm", "students_per_teacher", *EIGENVALUES} <= set(one["metric"].to_pylist())


def test_nothing_more_is_recorded_unless_it_is_requested():
    plain, one = trained(record=()), trained(record="gradient_norm")
    assert plain.metric_names == {"train_loss", "eval_loss", "rho_mean", "recovered"}
    assert one.metric_names - plain.metric_names == {"gradient_norm"}
    assert "record" not in plain.options and one.options["record"] == ["gradient_norm"]
    with pytest.raises(UserError, match=f"^record must be among {', '.join(RECORDABLE)}, got flatness, gradient$"):
        trained(record=["gradient", "gradient_norm", "flatness"])


def test_labelled_groups_are_measured_by_the_loss_of_their_labels():
    data = Sorted(*(torch.randn(count, 4, generator=torch.Generator().manual_seed(count)) for count in (40, 30)))
    student = starts.like_linear(TEACHER, multiple=2)[:1]
    group = Group(student, student, data, CrossEntropy(), labelled=True)
    found = Training([group], SGD(0.05, batch=8), steps=3, record=["gradient_norm"]).probe().metrics.to_pylist()
    x, labels = data.evaluating(1, dtype=torch.float64), data.evaluation_labels(1)
    target = torch.nn.functional.one_hot(labels, 2).double()
    expected = measures.gradient_norm(student.to(dtype=torch.float64), x, target, CrossEntropy().losses)
    assert [row["value"] for row in found if row["metric"] == "gradient_norm"] == [pytest.approx(expected.item())]


def test_networks_without_a_finite_loss_do_not_stop_the_others():
    layers = tuple(Layer(w.clone(), b.clone()) for w, b in STUDENTS.layers)
    for weight, _ in layers:
        weight[1] = 1e30
    run = us.train(Population(layers, STUDENTS.seeds), TEACHER, DATA, SGD(0.01), epochs=1, steps=3, record=RECORDABLE)
    assert run.networks["diverged_at"].to_pylist() == [None, 0, None]
    values = run.array("hessian_eigenvalue_1", "network epoch", diverged=True)
    assert np.isfinite(values[[0, 2]]).all() and np.isnan(values[1]).all()


def test_requested_metrics_are_planned():
    def plan(*names):
        return Training([Group(STUDENTS, TEACHER, DATA)], SGD(0.05, batch=8), steps=6, record=names).plan

    plain, gradient, both = plan(), plan("gradient_norm"), plan("gradient_norm", "hessian_eigenvalues")
    assert plain.memory["work"] < gradient.memory["work"] < both.memory["work"]
    products = 4 * 6 + 6 * 2
    assert gradient.rows[0].probe_flops - plain.rows[0].probe_flops == 2 * 3 * 50 * 3 * products
    assert both.rows[0].probe_flops - gradient.rows[0].probe_flops == 2 * 3 * 50 * 9 * 35 * products
    with pytest.raises(UserError, match="memory: 3 networks need at least"):
        Training([Group(STUDENTS, TEACHER, DATA)], SGD(), steps=1, record=["hessian_eigenvalues"], memory=100_000)


def test_ranks_that_do_not_fit_are_refused_before_training(monkeypatch):
    group = Group(STUDENTS, TEACHER, DATA)
    assert rank_bytes([group], 3) == 2 * 3 * 3 * 6 * 3
    monkeypatch.setattr("understudy.lab.train.free_memory", lambda: rank_bytes([group], 3) - 1)
    trained(epochs=1, record=["median_rank"])
    with pytest.raises(TooLargeError, match=r"^the ranks of all students at 3 probes need .* GB, but only"):
        trained(epochs=2, record=["median_rank"])


def small(**options):
    sizes = {"seeds": 2, "teacher_nodes": (3,), "polarity": (1.0,), "multiple": (2.0,), "epochs": 3, "steps": 5}
    return TwoLayer(**sizes | {"dim": 4, "outputs": 2, "train": 40, "evaluation": 30, "device": "cpu"} | options)


def test_studies_record_what_their_option_asks_for(tmp_path):
    study = small(record=("gradient_norm", "median_rank"))
    run = execute(study, tmp_path, Said())
    usual = {"train_loss", "eval_loss", "rho_mean", "recovered"}
    assert run.metric_names - usual == {"gradient_norm", "mean_rank", "median_rank"}
    ranks = run.array("median_rank", "seed epoch")
    assert (ranks.sel(epoch=3) == 0).all() and ranks.notnull().all()
    assert not (run.folder / "ranks.parquet").exists()
    assert type(study).from_config(run.config) == study.resolved()
    assert "--record gradient_norm median_rank" in study.command()


def test_a_study_that_records_nothing_more_has_the_configuration_it_had_before():
    assert "record" not in small().config()["options"]
    assert re.search(r"--record takes each value once", refused(record=("median_rank",) * 2))
    assert "--record must be one of gradient_norm, " in refused(record=("flatness",))


def refused(**options):
    with pytest.raises(UserError) as error:
        small(**options)
    return str(error.value)


def test_the_space_on_disk_includes_the_ranks():
    plain = small().experiment()
    ranked = type(plain)(**vars(plain) | {"ranks": frozenset(range(4))})
    assert disk_space(ranked) - disk_space(plain) == 2 * rank_bytes(plain.groups, 4)


def test_the_tables_of_a_run_of_us_train_can_be_saved(tmp_path):
    run = trained(record=("median_rank", "gradient_norm"))
    saved = run.save(tmp_path / "run")
    assert pq.read_table(saved.folder / "metrics.parquet").num_rows == run.metrics.num_rows
    np.testing.assert_array_equal(saved.array("median_rank"), run.array("median_rank"))
    assert saved.report(tmp_path / "report.html").is_file()
