"""The loop: its tables, numbers that do not depend on the batch composition, resumption, and error messages."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from support.kinds import KINDS, made, same
from support.reference_loop import reference
from understudy import measures, teachers
from understudy import students as starts
from understudy._errors import UserError
from understudy.data import Gaussian
from understudy.lab.train import train
from understudy.nets import Layer, Population, stack
from understudy.training import GD, SGD, Adam, CrossEntropy, Group, SquaredError, Training
from understudy.training.optimisers import rates
from understudy.training.probes.reading import loss
from understudy.training.records import METRICS, NODES, concatenate

DATA = Gaussian(dim=4, train=60, evaluation=50)
FRESH = Gaussian(dim=4, train=60, evaluation=50, fresh=True)
TEACHER = teachers.distinct_rows((4, 3, 2), seeds=[1, 2, 3, 4, 5], dtype=torch.float64)
STUDENTS = starts.gaussian(TEACHER, multiple=2, scale=0.3)
DEEP = teachers.regular((4, 3, 5, 2), seeds=[1, 2, 3])
LR = (0.05, 0.04, 0.03, 0.02, 0.01)


def column(table, name):
    values = table[name]
    return (values.cast(pa.string()) if pa.types.is_dictionary(values.type) else values).to_numpy()


def diverged_at(run):
    """Step at which each network diverged, None if it did not."""
    return run.networks["diverged_at"].to_pylist()


def rows_of(table, network):
    """Select the rows of one network, without the column `network`."""
    return table.filter(pc.equal(table["network"], network)).drop_columns(["network"])


def assert_same(one, other):
    """Assert that tables have the same rows, bit for bit."""
    assert one.schema == other.schema and len(one) == len(other) > 0
    for name in one.column_names:
        np.testing.assert_array_equal(column(one, name), column(other, name), err_msg=name)


def same_weights(one, other):
    return all(
        torch.equal(a.weight, b.weight) and (a.bias is None or torch.equal(a.bias, b.bias))
        for a, b in zip(one.layers, other.layers, strict=True)
    )


def metric(table, name, epoch, layer=-1):
    """Select a metric of every network at an epoch."""
    wanted = pc.and_(pc.equal(table["epoch"], epoch), pc.equal(table["layer"], layer))
    return column(table.filter(pc.and_(wanted, pc.equal(table["metric"].cast(pa.string()), name))), "value")


CASES = {
    "sgd": (lambda lr: SGD(lr, batch=8), SquaredError(), DATA),
    "nesterov-schedule": (lambda lr: SGD(lr, 8, 0.9, nesterov=True, schedule=((2, 0.3),)), SquaredError(), DATA),
    "adam-fresh": (lambda lr: Adam(lr, batch=8), CrossEntropy(soft=True), FRESH),
    "gd-hard": (lambda lr: GD(lr), CrossEntropy(), FRESH),
}
cases = pytest.mark.parametrize("case", CASES)


@cases
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_and_weights_do_not_depend_on_the_batch_composition(case, dtype):
    optimiser, objective, data = CASES[case]
    students, teacher = STUDENTS.to(dtype=dtype), TEACHER.to(dtype=dtype)
    options = {"epochs": 2, "steps": 13, "objective": objective}
    together = train(students, teacher, data, optimiser(LR), **options)
    for i in range(len(students)):
        alone = train(students[i], teacher[i], data, optimiser(LR[i]), **options)
        assert_same(rows_of(together.metrics, i), rows_of(alone.metrics, 0))
        assert_same(rows_of(together.nodes, i), rows_of(alone.nodes, 0))
        assert same_weights(together.students[i], alone.students)
        assert not same_weights(alone.students, students[i])


@pytest.mark.parametrize("sizes", [(200, 1, 10), (100, 10, 1), (100, 20, 50)])
def test_rows_of_networks_of_a_usual_size_do_not_depend_on_the_batch_composition(sizes):
    # Large enough for BLAS and torch to choose kernels by size.
    teacher = teachers.regular(sizes, seeds=[1, 2, 3])
    students, data = starts.gaussian(teacher, multiple=5), Gaussian(dim=sizes[0], train=300, evaluation=1_200)
    together = train(students, teacher, data, SGD(0.01), epochs=1, steps=20)
    for i in range(3):
        alone = train(students[i], teacher[i], data, SGD(0.01), epochs=1, steps=20)
        assert_same(rows_of(together.metrics, i), rows_of(alone.metrics, 0))
        assert_same(rows_of(together.nodes, i), rows_of(alone.nodes, 0))


def test_populations_of_several_shapes_train_together_as_each_alone():
    shapes = [starts.gaussian(TEACHER, multiple=m, scale=0.3) for m in (1, 2, 3)]
    several = train(shapes, TEACHER, DATA, SGD(0.05, batch=8), epochs=2, steps=7)
    assert len(several.students) == 3 and len(diverged_at(several)) == 15
    for i, one in enumerate(shapes):
        alone = train(one, TEACHER, DATA, SGD(0.05, batch=8), epochs=2, steps=7)
        assert same_weights(several.students[i], alone.students)
        for j in range(5):
            assert_same(rows_of(several.metrics, 5 * i + j), rows_of(alone.metrics, j))
            assert_same(rows_of(several.nodes, 5 * i + j), rows_of(alone.nodes, j))


@pytest.mark.parametrize("other", ["seeds", "dtype"])
def test_groups_of_one_teacher_and_source_do_not_use_each_others_data(other):
    second = starts.gaussian(TEACHER, multiple=2, scale=0.3, seeds=[11, 12, 13, 14, 15])
    second = second if other == "seeds" else STUDENTS.to(dtype=torch.float32)
    both = train([STUDENTS, second], TEACHER, DATA, SGD(0.05, batch=8), epochs=1, steps=5)
    alone = train(second, TEACHER, DATA, SGD(0.05, batch=8), epochs=1, steps=5)
    assert same_weights(both.students[1], alone.students)
    assert_same(rows_of(both.metrics, 7), rows_of(alone.metrics, 2))


@cases
@pytest.mark.parametrize("at", [0, 1, 2])
def test_resumed_training_equals_uninterrupted_training(case, at):
    make, objective, data = CASES[case]
    stops = [4, 4, 1, 2, 4]

    def begin():
        group = Group(STUDENTS, TEACHER, data, objective)
        return Training([group], make((1e9, *LR[1:])), steps=6, stops=stops)

    whole, left = begin(), begin()
    records, again = [whole.probe()], [left.probe()]
    for epoch in range(4):
        whole.advance()
        records.append(whole.probe())
        if epoch == at:
            saved = {name: tensor.clone() for name, tensor in left.state_dict().items()}
            left = begin()
            left.load_state_dict(saved)
        left.advance()
        again.append(left.probe())
    assert_same(concatenate([r.metrics for r in records], METRICS), concatenate([r.metrics for r in again], METRICS))
    assert_same(concatenate([r.nodes for r in records], NODES), concatenate([r.nodes for r in again], NODES))
    assert same_weights(whole.populations()[0], left.populations()[0])
    assert torch.equal(whole.diverged_at, left.diverged_at) and left.epoch == 4
    assert left.state_dict().keys() == whole.state_dict().keys()


def test_train_equals_training_epoch_by_epoch():
    training = Training([Group(STUDENTS, TEACHER, DATA)], SGD(0.05, batch=8), steps=6)
    records = [training.probe()]
    for _ in range(2):
        training.advance()
        records.append(training.probe())
    once = train(STUDENTS, TEACHER, DATA, SGD(0.05, batch=8), epochs=2, steps=6)
    assert_same(concatenate([r.metrics for r in records], METRICS), once.metrics)
    assert once.teacher is TEACHER and len(training) == 5
    before = {m: column(once.metrics, m).tolist() for m in ("epoch", "layer", "metric")}
    assert set(before["epoch"]) == {0, 1, 2} and set(before["layer"]) == {-1, 0}
    assert set(before["metric"]) == {"train_loss", "eval_loss", "rho_mean", "recovered"}


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_the_loop_agrees_with_the_reference_loop(kind):
    def make(lr):
        return {"sgd": SGD, "adam": Adam}[kind](lr, batch=8, schedule=((3, 0.1),))

    trained = train(STUDENTS, TEACHER, DATA, make(LR), epochs=3, steps=20)
    for i, seed in enumerate(STUDENTS.seeds.tolist()):
        x = DATA.training(seed, dtype=torch.float64)
        ended, losses = reference(STUDENTS[i], x, TEACHER[i](x)[0], make(LR[i]), SquaredError(), epochs=3, steps=20)
        for ours, theirs in zip(trained.students[i].layers, ended.layers, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=0)
        for epoch in (1, 2, 3):
            expected = losses[20 * (epoch - 1) : 20 * epoch].mean()
            assert metric(trained.metrics, "train_loss", epoch)[i] == pytest.approx(float(expected), abs=1e-9)


def test_fresh_data_is_new_every_epoch_and_the_reference_loop_agrees():
    trained = train(STUDENTS, TEACHER, FRESH, GD(0.05), epochs=2, steps=5)
    finite = train(STUDENTS, TEACHER, DATA, GD(0.05), epochs=2, steps=5)
    assert not same_weights(trained.students, finite.students)
    for i, seed in enumerate(STUDENTS.seeds.tolist()):
        first, second = (FRESH.training(seed, epoch, dtype=torch.float64) for epoch in (1, 2))
        assert not torch.equal(first, second)
        assert torch.equal(first, FRESH.training(seed, 1, dtype=torch.float64))
        ended = STUDENTS[i]
        for x in (first, second):
            ended, _ = reference(ended, x, TEACHER[i](x)[0], GD(0.05), SquaredError(), epochs=1, steps=5)
        for ours, theirs in zip(trained.students[i].layers, ended.layers, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=0)


def test_a_network_stops_at_its_epoch():
    stops = [0, 1, 3, 2, 9]
    trained = train(STUDENTS, TEACHER, DATA, SGD(0.05, batch=8), epochs=4, steps=5, stops=stops)
    for i, stop in enumerate(stops):
        last = min(stop, 4)
        for table in (trained.metrics, trained.nodes):
            assert sorted(set(column(rows_of(table, i), "epoch"))) == list(range(last + 1))
        until = train(STUDENTS, TEACHER, DATA, SGD(0.05, batch=8), epochs=last, steps=5)
        assert same_weights(trained.students[i], until.students[i])
    assert diverged_at(trained) == [None] * len(STUDENTS)


def test_epochs_after_every_network_has_stopped_add_nothing():
    options = {"epochs": 3, "steps": 5}
    trained = train(STUDENTS, TEACHER, DATA, SGD(0.05, batch=8), stops=[1] * 5, **options)
    assert sorted(set(column(trained.metrics, "epoch"))) == [0, 1]


def first_not_finite(student, teacher, lr, steps):
    """Find the first step at which the loss of the reference loop is not finite."""
    x = DATA.training(int(student.seeds[0]), dtype=torch.float64)
    optimiser = SGD(lr, batch=8)
    _, losses = reference(student, x, teacher(x)[0], optimiser, SquaredError(), epochs=1, steps=steps)
    return int((~losses.isfinite()).int().argmax())


@pytest.mark.parametrize(("lr", "steps"), [(1e9, 4), (40.0, 4), (1e9, 1), (1e100, 1)])
def test_a_network_that_diverges_is_marked_and_does_not_affect_the_others(lr, steps):
    each = (*LR[:2], lr, *LR[3:])
    when = first_not_finite(STUDENTS[2], TEACHER[2], lr, steps=40)
    assert when > 0
    epochs = when // steps + 2
    trained = train(STUDENTS, TEACHER, DATA, SGD(each, batch=8), epochs=epochs, steps=steps)
    assert diverged_at(trained) == [None, None, when, None, None]

    rest, kept = [0, 1, 3, 4], tuple(rate for rate in each if rate != lr)
    without = train(STUDENTS[rest], TEACHER[rest], DATA, SGD(kept, batch=8), epochs=epochs, steps=steps)
    assert same_weights(trained.students[rest], without.students)
    for now, then in enumerate(rest):
        assert_same(rows_of(trained.metrics, then), rows_of(without.metrics, now))
        assert_same(rows_of(trained.nodes, then), rows_of(without.nodes, now))

    last = max(column(rows_of(trained.metrics, 2), "epoch"))
    assert last == max(column(rows_of(trained.nodes, 2), "epoch")) and (when - 1) // steps <= last <= when // steps
    before = train(STUDENTS, TEACHER, DATA, SGD(each, batch=8), epochs=when // steps, steps=steps)
    assert same_weights(trained.students[2], before.students[2])
    assert all(p.isfinite().all() for layer in trained.students.layers for p in layer)
    assert np.isfinite(column(trained.metrics, "value")).all()


def test_a_run_whose_networks_have_all_diverged_continues_without_rows():
    trained = train(STUDENTS, TEACHER, DATA, SGD(1e9, batch=8), epochs=3, steps=20)
    assert all(diverged_at(trained)) and set(column(trained.metrics, "epoch")) == {0}


def test_a_network_without_a_finite_initial_loss_is_marked_at_step_zero():
    layers = tuple(Layer(w.clone(), b.clone()) for w, b in STUDENTS.layers)
    for weight, _ in layers:
        weight[1] = 1e200
    trained = train(Population(layers, STUDENTS.seeds), TEACHER, DATA, SGD(0.05, batch=8), epochs=1, steps=3)
    assert diverged_at(trained) == [None, 0, None, None, None]
    assert set(column(trained.metrics, "network")) == {0, 2, 3, 4}


@pytest.mark.parametrize("objective", [SquaredError(), CrossEntropy(), CrossEntropy(soft=True)])
def test_losses_in_the_tables_agree_with_torch(objective):
    trained = train(STUDENTS, TEACHER, DATA, SGD(0.05, batch=8), epochs=1, steps=30, objective=objective)
    for i, seed in enumerate(STUDENTS.seeds.tolist()):
        for epoch, name, x, student in (
            (0, "train_loss", DATA.training(seed, dtype=torch.float64), STUDENTS[i]),
            (0, "eval_loss", DATA.evaluating(seed, dtype=torch.float64), STUDENTS[i]),
            (1, "eval_loss", DATA.evaluating(seed, dtype=torch.float64), trained.students[i]),
        ):
            f, target = student(x)[0], TEACHER[i](x)[0]
            if isinstance(objective, SquaredError):
                expected = torch.nn.functional.mse_loss(f, target)
            else:
                wanted = target.softmax(1) if objective.soft else target.argmax(1)
                expected = torch.nn.functional.cross_entropy(f, wanted)
            found = metric(trained.metrics, name, epoch)[i]
            assert found == pytest.approx(float(expected), abs=1e-12), (name, epoch)
    assert (metric(trained.metrics, "eval_loss", 1) < metric(trained.metrics, "eval_loss", 0)).all()


def test_the_loss_of_many_samples_is_computed_in_passes():
    x = torch.randn(5, 2_500, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = (STUDENTS(x) - TEACHER(x)).square().mean((1, 2))
    torch.testing.assert_close(loss(STUDENTS, x, TEACHER(x), SquaredError()), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("multiple", [1, 2])
def test_matched_nodes_agree_with_the_measures(multiple):
    students = starts.like_linear(DEEP, multiple=multiple)
    trained = train(students, DEEP, DATA, SGD(0.05, batch=8), epochs=1, steps=30, pairs=True)
    for i, seed in enumerate(students.seeds.tolist()):
        x, student, teacher = DATA.evaluating(seed), trained.students[i], DEEP[i]
        for layer in (0, 1):
            rho = measures.correlation(teacher.activations(x).hidden[layer], student.activations(x).hidden[layer])[0]
            nodes = rows_of(trained.nodes, i).filter(pc.equal(rows_of(trained.nodes, i)["epoch"], 1))
            nodes = nodes.filter(pc.equal(nodes["layer"], layer))
            fans = measures.modulated_fan_out(student, x[:1_000])[layer][0]
            for role, best in (("teacher", rho.max(1)), ("student", rho.max(0)), ("pair", None)):
                rows = nodes.filter(pc.equal(nodes["role"].cast(pa.string()), role))
                t, s = (torch.from_numpy(column(rows, side).astype(np.int64)) for side in ("teacher", "student"))
                if best is None:
                    assert list(zip(t.tolist(), s.tolist(), strict=True)) == list(np.ndindex(*rho.shape))
                else:
                    mine, other = (t, s) if role == "teacher" else (s, t)
                    assert mine.tolist() == list(range(len(best.indices))) and torch.equal(other, best.indices)
                    np.testing.assert_allclose(column(rows, "fanout"), fans[s], rtol=1e-6)
                np.testing.assert_allclose(column(rows, "correlation"), rho[t, s], rtol=1e-6)
                if layer or best is None:
                    assert np.isnan(column(rows, "sin_angle")).all() and np.isnan(column(rows, "bias_gap")).all()
                    continue
                sines = measures.sin_angle(teacher.layers[0].weight, student.layers[0].weight)[0]
                gaps = measures.bias_gap(teacher.layers[0], student.layers[0])[0]
                np.testing.assert_allclose(column(rows, "sin_angle"), sines[t, s], rtol=1e-5)
                np.testing.assert_allclose(column(rows, "bias_gap"), gaps[t, s], rtol=1e-5)
            best = rho.amax(1)
            assert metric(trained.metrics, "rho_mean", 1, layer)[i] == pytest.approx(float(best.mean()), rel=1e-6)
            share = float((best > 0.95).double().mean())
            assert metric(trained.metrics, "recovered", 1, layer)[i] == pytest.approx(share, rel=1e-6)


def test_deep_students_train_and_have_rows_for_every_hidden_layer():
    teacher = teachers.regular((4, 3, 5, 4, 2), seeds=[1, 2])
    trained = train(starts.like_linear(teacher, multiple=2), teacher, DATA, Adam(0.01, batch=8), epochs=3, steps=100)
    assert set(column(trained.nodes, "layer")) == {0, 1, 2} and set(column(trained.metrics, "layer")) == {-1, 0, 1, 2}
    assert (metric(trained.metrics, "eval_loss", 3) < 0.7 * metric(trained.metrics, "eval_loss", 0)).all()
    above = pc.greater(trained.nodes["layer"], 0)
    assert np.isnan(column(trained.nodes.filter(above), "sin_angle")).all()
    assert np.isfinite(column(trained.nodes.filter(pc.invert(above)), "sin_angle")).all()
    counted = np.unique(column(rows_of(trained.nodes, 0), "layer"), return_counts=True)[1].tolist()
    assert counted == [4 * (3 + 6), 4 * (5 + 10), 4 * (4 + 8)]


def test_students_of_a_small_teacher_recover_every_node():
    teacher = teachers.distinct_rows((5, 2, 3), seeds=range(1, 5))
    students = starts.gaussian(teacher, multiple=4, scale=0.1)
    data = Gaussian(dim=5, train=2_000, evaluation=500)
    trained = train(students, teacher, data, SGD(0.05, batch=16), epochs=4, steps=1_000)
    assert metric(trained.metrics, "recovered", 4, layer=0).tolist() == [1.0] * 4
    assert (metric(trained.metrics, "rho_mean", 4, layer=0) > 0.99).all()
    assert (metric(trained.metrics, "eval_loss", 4) < 1e-2 * metric(trained.metrics, "eval_loss", 0)).all()


def test_a_schedule_uses_the_last_factor_that_has_begun():
    optimiser = SGD((1.0, 2.0), schedule=((5, 0.1), (3, 0.5)))
    found = [rates(optimiser, 2, epoch).tolist() for epoch in (1, 2, 3, 4, 5, 9)]
    assert found == [[1, 2], [1, 2], [0.5, 1], [0.5, 1], [0.1, 0.2], [0.1, 0.2]]
    assert rates(SGD(0.3), 3, 7).tolist() == [0.3] * 3


@pytest.mark.parametrize("kind", [SGD, Adam, GD])
@pytest.mark.parametrize("lr", [0, 0.0, -0.1, math.nan, math.inf, (0.1, 0.0), (0.1, math.nan)])
def test_a_learning_rate_that_is_not_positive_is_rejected(kind, lr):
    with pytest.raises(UserError, match=r"^lr must be positive and finite, got "):
        kind(lr=lr)


SCHEDULE = "schedule must have entries (epoch, factor) with epoch at least 1 and a finite factor at least 0, got "


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(batch=0), "batch must be at least 1, or None for all samples, got 0"),
        (lambda: Adam(batch=-3), "batch must be at least 1, or None for all samples, got -3"),
        (lambda: SGD(momentum=1.0), "momentum must be at least 0 and below 1, got 1.0"),
        (lambda: SGD(momentum=-0.1), "momentum must be at least 0 and below 1, got -0.1"),
        (lambda: SGD(momentum=math.nan), "momentum must be at least 0 and below 1, got nan"),
        (lambda: SGD(nesterov=True), "nesterov=True needs a momentum above 0"),
        (lambda: SGD(decay=-0.1), "decay must be finite and at least 0, got -0.1"),
        (lambda: Adam(decay=math.nan), "decay must be finite and at least 0, got nan"),
        (lambda: Adam(betas=(1.0, 0.9)), "betas must both be at least 0 and below 1, got (1.0, 0.9)"),
        (lambda: Adam(betas=(0.9, -0.1)), "betas must both be at least 0 and below 1, got (0.9, -0.1)"),
        (lambda: Adam(betas=(0.9, math.nan)), "betas must both be at least 0 and below 1, got (0.9, nan)"),
        (lambda: Adam(eps=0.0), "eps must be positive and finite, got 0.0"),
        (lambda: Adam(eps=math.nan), "eps must be positive and finite, got nan"),
        (
            lambda: GD(schedule=((0, 0.5),)),
            SCHEDULE + "(0, 0.5)",
        ),
        (
            lambda: SGD(schedule=((2, -1),)),
            SCHEDULE + "(2, -1)",
        ),
        (
            lambda: Adam(schedule=((2, math.inf),)),
            SCHEDULE + "(2, inf)",
        ),
        (lambda: rates(SGD((0.1, 0.2)), 3, 1), "lr must be one rate, or one per network (3), got 2 rates"),
    ],
)
def test_optimisers_reject_bad_values(make, message):
    with pytest.raises(UserError) as caught:
        make()
    assert str(caught.value) == message


@pytest.mark.parametrize("shape", ["fc-before", "conv"])
def test_one_teacher_of_all_students_equals_one_each(shape):
    teacher = made(KINDS[shape], 1, dtype=torch.float32)
    data = Gaussian(dim=teacher.inputs, train=40, evaluation=30)
    students = [starts.like_linear(teacher, multiple=k, seeds=[4, 9, 4]) for k in (1, 2)]
    options = {"epochs": 2, "steps": 3}
    shared = train(students, teacher, data, SGD(0.05, batch=8), **options)
    by_hand = train(students, stack([teacher] * 3), data, SGD(0.05, batch=8), **options)
    assert_same(shared.metrics, by_hand.metrics)
    assert_same(shared.nodes, by_hand.nodes)
    assert all(same(one, other) for one, other in zip(shared.students, by_hand.students, strict=True))
    assert same(shared.teacher, teacher) and same(by_hand.teacher, teacher)


def test_populations_of_different_length_share_one_teacher():
    students = [starts.gaussian(TEACHER[0], multiple=2, scale=0.3, seeds=range(n)) for n in (2, 3)]
    together = trained_with(students, TEACHER[0])
    for i, (first, alone) in enumerate(zip((0, 2), students, strict=True)):
        found = trained_with(alone, TEACHER[0])
        assert same(found.students, together.students[i])
        assert_same(rows_of(found.nodes, 1), rows_of(together.nodes, first + 1))


def trained_with(students=STUDENTS, teacher=TEACHER, data=DATA, optimiser=None, **options):
    return train(students, teacher, data, optimiser or SGD(), **{"epochs": 1, "steps": 1, **options})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"teacher": TEACHER[:3]}, "5 students need one teacher, or as many teachers, got 3"),
        (
            {"teacher": teachers.distinct_rows((6, 3, 2), seeds=range(5))},
            "students and teachers must have the same number of inputs, got 4 and 6",
        ),
        (
            {"teacher": teachers.distinct_rows((4, 3, 7), seeds=range(5))},
            "students and teachers must have the same number of outputs, got 2 and 7",
        ),
        (
            {"teacher": teachers.distinct_rows((4, 3, 3, 2), seeds=range(5))},
            "students and teachers must have the same number of layers, which are compared one to one, "
            "got 2 linear, and 3 linear",
        ),
        ({"data": Gaussian(dim=9)}, "data and networks must have the same number of inputs, got 9 and 4"),
        (
            {"optimiser": SGD(batch=61)},
            "the batch size must be at most the number of training samples (60), got 61",
        ),
        ({"optimiser": SGD((0.1, 0.2))}, "lr must be one rate, or one per network (5), got 2 rates"),
        ({"stops": [1, 2]}, "stops must have one epoch per network (5), got 2"),
        ({"steps": 0}, "steps must be at least 1 per epoch, got 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_training_rejects_what_does_not_fit_together(wrong, message):
    with pytest.raises(UserError) as caught:
        trained_with(**wrong)
    assert str(caught.value) == message


MODEL = torch.nn.Sequential(torch.nn.Linear(4, 2))
STUDENTS_NEEDED = "students must be a Population, or a list of Populations, got "
CONVERT = "; convert a model with us.from_module(model)"


@pytest.mark.wrong_shapes
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"students": MODEL}, STUDENTS_NEEDED + "Sequential" + CONVERT),
        (
            {"students": [MODEL]},
            STUDENTS_NEEDED + "list of Sequential" + CONVERT,
        ),
        ({"students": []}, STUDENTS_NEEDED + "list"),
        ({"teacher": [MODEL]}, "teacher must be a Population, got list of Sequential" + CONVERT),
        (
            {"data": torch.zeros(5, 4)},
            "data must be a source of inputs, such as us.data.Gaussian(dim=20), got Tensor",
        ),
        ({"epochs": -1}, "epochs must be at least 0, got -1"),
    ],
    ids=["module", "list of modules", "nothing", "teacher", "data", "epochs"],
)
def test_arguments_of_a_wrong_kind_are_rejected(wrong, message):
    with pytest.raises(UserError) as caught:
        trained_with(**wrong)
    assert str(caught.value) == message


def test_a_batch_may_have_as_many_samples_as_the_data():
    assert diverged_at(trained_with(optimiser=SGD(batch=60))) == [None] * 5
