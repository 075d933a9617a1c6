"""The loop: what it records, that a network's numbers are its own, and that it goes on from where it was left."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from support.reference_loop import reference
from understudy import measures, teachers
from understudy import students as starts
from understudy.data import Gaussian
from understudy.errors import UserError
from understudy.nets import Layer, Population
from understudy.training import GD, SGD, Adam, CrossEntropy, Group, SquaredError, Training, train
from understudy.training.optimisers import rates
from understudy.training.probes.reading import loss
from understudy.training.records import METRICS, NODES, joined

DATA = Gaussian(dim=4, train=60, evaluation=50)
FRESH = Gaussian(dim=4, train=60, evaluation=50, fresh=True)
TEACHER = teachers.separated((4, 3, 2), seeds=[1, 2, 3, 4, 5], dtype=torch.float64)
STUDENTS = starts.gaussian(TEACHER, multiple=2, scale=0.3)
DEEP = teachers.regular((4, 3, 5, 2), seeds=[1, 2, 3])
LR = (0.05, 0.04, 0.03, 0.02, 0.01)


def column(table, name):
    values = table[name]
    return (values.cast(pa.string()) if pa.types.is_dictionary(values.type) else values).to_numpy()


def of(table, network):
    """The rows of one network, without its number."""
    return table.filter(pc.equal(table["network"], network)).drop_columns(["network"])


def assert_same(one, other):
    """Tables of the same rows, bit for bit."""
    assert one.schema == other.schema and len(one) == len(other) > 0
    for name in one.column_names:
        np.testing.assert_array_equal(column(one, name), column(other, name), err_msg=name)


def same_weights(one, other):
    return all(
        torch.equal(a.weight, b.weight) and (a.bias is None or torch.equal(a.bias, b.bias))
        for a, b in zip(one.layers, other.layers, strict=True)
    )


def metric(table, name, epoch, layer=-1):
    """A metric of every network at an epoch."""
    wanted = pc.and_(pc.equal(table["epoch"], epoch), pc.equal(table["layer"], layer))
    return column(table.filter(pc.and_(wanted, pc.equal(table["metric"].cast(pa.string()), name))), "value")


WAYS = {
    "sgd": (lambda lr: SGD(lr, batch=8), SquaredError(), DATA),
    "nesterov-schedule": (lambda lr: SGD(lr, 8, 0.9, nesterov=True, schedule=((2, 0.3),)), SquaredError(), DATA),
    "adam-fresh": (lambda lr: Adam(lr, batch=8), CrossEntropy(soft=True), FRESH),
    "gd-hard": (lambda lr: GD(lr), CrossEntropy(), FRESH),
}
ways = pytest.mark.parametrize("way", WAYS)


@ways
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_leaves_the_same_rows_and_weights_alone_and_in_company(way, dtype):
    optimiser, objective, data = WAYS[way]
    students, teacher = STUDENTS.to(dtype=dtype), TEACHER.to(dtype=dtype)
    options = {"epochs": 2, "steps": 13, "objective": objective}
    together = train(students, teacher, data, optimiser(LR), **options)
    for i in range(len(students)):
        alone = train(students[i], teacher[i], data, optimiser(LR[i]), **options)
        assert_same(of(together.metrics, i), of(alone.metrics, 0))
        assert_same(of(together.nodes, i), of(alone.nodes, 0))
        assert same_weights(together.students[i], alone.students)
        assert not same_weights(alone.students, students[i])


@pytest.mark.parametrize("sizes", [(200, 1, 10), (100, 10, 1), (100, 20, 50)])
def test_rows_of_networks_of_a_usual_size_do_not_depend_on_company(sizes):
    # Large enough for BLAS and torch to choose their ways by how much there is to do.
    teacher = teachers.regular(sizes, seeds=[1, 2, 3])
    students, data = starts.gaussian(teacher, multiple=5), Gaussian(dim=sizes[0], train=300, evaluation=1_200)
    together = train(students, teacher, data, SGD(0.01), epochs=1, steps=20)
    for i in range(3):
        alone = train(students[i], teacher[i], data, SGD(0.01), epochs=1, steps=20)
        assert_same(of(together.metrics, i), of(alone.metrics, 0))
        assert_same(of(together.nodes, i), of(alone.nodes, 0))


def test_populations_of_several_shapes_march_together_as_each_alone():
    shapes = [starts.gaussian(TEACHER, multiple=m, scale=0.3) for m in (1, 2, 3)]
    several = train(shapes, TEACHER, DATA, SGD(0.05, batch=8), epochs=2, steps=7)
    assert len(several.students) == 3 and len(several.diverged_at) == 15
    for i, one in enumerate(shapes):
        alone = train(one, TEACHER, DATA, SGD(0.05, batch=8), epochs=2, steps=7)
        assert same_weights(several.students[i], alone.students)
        for j in range(5):
            assert_same(of(several.metrics, 5 * i + j), of(alone.metrics, j))
            assert_same(of(several.nodes, 5 * i + j), of(alone.nodes, j))


@pytest.mark.parametrize("other", ["seeds", "dtype"])
def test_groups_of_one_teacher_and_source_do_not_take_each_others_data(other):
    second = starts.gaussian(TEACHER, multiple=2, scale=0.3, seeds=[11, 12, 13, 14, 15])
    second = second if other == "seeds" else STUDENTS.to(dtype=torch.float32)
    both = train([STUDENTS, second], TEACHER, DATA, SGD(0.05, batch=8), epochs=1, steps=5)
    alone = train(second, TEACHER, DATA, SGD(0.05, batch=8), epochs=1, steps=5)
    assert same_weights(both.students[1], alone.students)
    assert_same(of(both.metrics, 7), of(alone.metrics, 2))


@ways
@pytest.mark.parametrize("at", [0, 1, 2])
def test_training_taken_up_again_is_training_that_never_stopped(way, at):
    make, objective, data = WAYS[way]
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
            kept = {name: tensor.clone() for name, tensor in left.state().items()}
            left = begin()
            left.load(kept)
        left.advance()
        again.append(left.probe())
    assert_same(joined([r.metrics for r in records], METRICS), joined([r.metrics for r in again], METRICS))
    assert_same(joined([r.nodes for r in records], NODES), joined([r.nodes for r in again], NODES))
    assert same_weights(whole.populations()[0], left.populations()[0])
    assert torch.equal(whole.diverged_at, left.diverged_at) and left.epoch == 4
    assert left.state().keys() == whole.state().keys()


def test_train_is_training_epoch_by_epoch():
    training = Training([Group(STUDENTS, TEACHER, DATA)], SGD(0.05, batch=8), steps=6)
    records = [training.probe()]
    for _ in range(2):
        training.advance()
        records.append(training.probe())
    once = train(STUDENTS, TEACHER, DATA, SGD(0.05, batch=8), epochs=2, steps=6)
    assert_same(joined([r.metrics for r in records], METRICS), once.metrics)
    assert once.teacher is TEACHER and len(training) == 5
    before = {m: column(once.metrics, m).tolist() for m in ("epoch", "layer", "metric")}
    assert set(before["epoch"]) == {0, 1, 2} and set(before["layer"]) == {-1, 0}
    assert set(before["metric"]) == {"train_loss", "eval_loss", "rho_mean", "recovered"}


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_the_loop_gives_what_the_reference_loop_gives(kind):
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


def test_a_network_stops_where_it_is_told():
    stops = [0, 1, 3, 2, 9]
    trained = train(STUDENTS, TEACHER, DATA, SGD(0.05, batch=8), epochs=4, steps=5, stops=stops)
    for i, stop in enumerate(stops):
        last = min(stop, 4)
        for table in (trained.metrics, trained.nodes):
            assert sorted(set(column(of(table, i), "epoch"))) == list(range(last + 1))
        until = train(STUDENTS, TEACHER, DATA, SGD(0.05, batch=8), epochs=last, steps=5)
        assert same_weights(trained.students[i], until.students[i])
    assert (trained.diverged_at == -1).all()


def test_epochs_after_every_network_has_stopped_add_nothing():
    options = {"epochs": 3, "steps": 5}
    trained = train(STUDENTS, TEACHER, DATA, SGD(0.05, batch=8), stops=[1] * 5, **options)
    assert sorted(set(column(trained.metrics, "epoch"))) == [0, 1]


def first_not_finite(student, teacher, lr, steps):
    """When the plain loop says that a network's loss is no longer a number."""
    x = DATA.training(int(student.seeds[0]), dtype=torch.float64)
    optimiser = SGD(lr, batch=8)
    _, losses = reference(student, x, teacher(x)[0], optimiser, SquaredError(), epochs=1, steps=steps)
    return int((~losses.isfinite()).int().argmax())


@pytest.mark.parametrize(("lr", "steps"), [(1e9, 4), (40.0, 4), (1e9, 1), (1e100, 1)])
def test_a_network_that_diverges_is_marked_and_leaves_the_others_alone(lr, steps):
    each = (*LR[:2], lr, *LR[3:])
    when = first_not_finite(STUDENTS[2], TEACHER[2], lr, steps=40)
    assert when > 0
    epochs = when // steps + 2
    trained = train(STUDENTS, TEACHER, DATA, SGD(each, batch=8), epochs=epochs, steps=steps)
    assert trained.diverged_at.tolist() == [-1, -1, when, -1, -1]

    rest, kept = [0, 1, 3, 4], tuple(rate for rate in each if rate != lr)
    without = train(STUDENTS[rest], TEACHER[rest], DATA, SGD(kept, batch=8), epochs=epochs, steps=steps)
    assert same_weights(trained.students[rest], without.students)
    for now, then in enumerate(rest):
        assert_same(of(trained.metrics, then), of(without.metrics, now))
        assert_same(of(trained.nodes, then), of(without.nodes, now))

    last = max(column(of(trained.metrics, 2), "epoch"))
    assert last == max(column(of(trained.nodes, 2), "epoch")) and (when - 1) // steps <= last <= when // steps
    before = train(STUDENTS, TEACHER, DATA, SGD(each, batch=8), epochs=when // steps, steps=steps)
    assert same_weights(trained.students[2], before.students[2])
    assert all(p.isfinite().all() for layer in trained.students.layers for p in layer)
    assert np.isfinite(column(trained.metrics, "value")).all()


def test_a_run_whose_networks_have_all_diverged_goes_on_without_rows():
    trained = train(STUDENTS, TEACHER, DATA, SGD(1e9, batch=8), epochs=3, steps=20)
    assert (trained.diverged_at > 0).all() and set(column(trained.metrics, "epoch")) == {0}


def test_a_network_whose_start_has_no_finite_loss_is_marked_at_step_zero():
    layers = tuple(Layer(w.clone(), b.clone()) for w, b in STUDENTS.layers)
    for weight, _ in layers:
        weight[1] = 1e200
    trained = train(Population(layers, STUDENTS.seeds), TEACHER, DATA, SGD(0.05, batch=8), epochs=1, steps=3)
    assert trained.diverged_at.tolist() == [-1, 0, -1, -1, -1]
    assert set(column(trained.metrics, "network")) == {0, 2, 3, 4}


@pytest.mark.parametrize("objective", [SquaredError(), CrossEntropy(), CrossEntropy(soft=True)])
def test_losses_in_the_tables_are_those_of_the_samples(objective):
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
                answer = target.softmax(1) if objective.soft else target.argmax(1)
                expected = torch.nn.functional.cross_entropy(f, answer)
            found = metric(trained.metrics, name, epoch)[i]
            assert found == pytest.approx(float(expected), abs=1e-12), (name, epoch)
    assert (metric(trained.metrics, "eval_loss", 1) < metric(trained.metrics, "eval_loss", 0)).all()


def test_the_loss_of_many_samples_is_cut_and_still_their_mean():
    x = torch.randn(5, 2_500, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = (STUDENTS(x) - TEACHER(x)).square().mean((1, 2))
    torch.testing.assert_close(loss(STUDENTS, x, TEACHER(x), SquaredError()), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("multiple", [1, 2])
def test_who_learned_whom_is_what_the_measures_say(multiple):
    students = starts.like_linear(DEEP, multiple=multiple)
    trained = train(students, DEEP, DATA, SGD(0.05, batch=8), epochs=1, steps=30, pairs=True)
    for i, seed in enumerate(students.seeds.tolist()):
        x, student, teacher = DATA.evaluating(seed), trained.students[i], DEEP[i]
        for layer in (0, 1):
            rho = measures.Pair(teacher, student, x, layer).rho[0]
            nodes = of(trained.nodes, i).filter(pc.equal(of(trained.nodes, i)["epoch"], 1))
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
    counted = np.unique(column(of(trained.nodes, 0), "layer"), return_counts=True)[1].tolist()
    assert counted == [4 * (3 + 6), 4 * (5 + 10), 4 * (4 + 8)]


def test_students_of_a_small_teacher_recover_every_node():
    teacher = teachers.separated((5, 2, 3), seeds=range(1, 5))
    students = starts.gaussian(teacher, multiple=4, scale=0.1)
    data = Gaussian(dim=5, train=2_000, evaluation=500)
    trained = train(students, teacher, data, SGD(0.05, batch=16), epochs=4, steps=1_000)
    assert metric(trained.metrics, "recovered", 4, layer=0).tolist() == [1.0] * 4
    assert (metric(trained.metrics, "rho_mean", 4, layer=0) > 0.99).all()
    assert (metric(trained.metrics, "eval_loss", 4) < 1e-2 * metric(trained.metrics, "eval_loss", 0)).all()


def test_a_schedule_takes_the_last_factor_that_has_begun():
    optimiser = SGD((1.0, 2.0), schedule=((5, 0.1), (3, 0.5)))
    found = [rates(optimiser, 2, epoch).tolist() for epoch in (1, 2, 3, 4, 5, 9)]
    assert found == [[1, 2], [1, 2], [0.5, 1], [0.5, 1], [0.1, 0.2], [0.1, 0.2]]
    assert rates(SGD(0.3), 3, 7).tolist() == [0.3] * 3


@pytest.mark.parametrize("kind", [SGD, Adam, GD])
@pytest.mark.parametrize("lr", [0, 0.0, -0.1, math.nan, math.inf, (0.1, 0.0), (0.1, math.nan)])
def test_a_learning_rate_that_is_not_positive_is_refused(kind, lr):
    with pytest.raises(UserError, match=r"^lr: .* was given; a learning rate is a finite number above 0$"):
        kind(lr=lr)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(batch=0), "batch: 0 was given; a batch has 1 sample or more"),
        (lambda: Adam(batch=-3), "batch: -3 was given; a batch has 1 sample or more"),
        (lambda: SGD(momentum=1.0), "momentum: 1.0 was given; it lies from 0 to below 1"),
        (lambda: SGD(momentum=-0.1), "momentum: -0.1 was given; it lies from 0 to below 1"),
        (lambda: SGD(momentum=math.nan), "momentum: nan was given; it lies from 0 to below 1"),
        (lambda: SGD(nesterov=True), "nesterov: needs a momentum above 0"),
        (lambda: SGD(decay=-0.1), "decay: -0.1 was given; it is a finite number from 0"),
        (lambda: Adam(decay=math.nan), "decay: nan was given; it is a finite number from 0"),
        (lambda: Adam(betas=(1.0, 0.9)), "betas: (1.0, 0.9) was given; both lie from 0 to below 1"),
        (lambda: Adam(betas=(0.9, -0.1)), "betas: (0.9, -0.1) was given; both lie from 0 to below 1"),
        (lambda: Adam(betas=(0.9, math.nan)), "betas: (0.9, nan) was given; both lie from 0 to below 1"),
        (lambda: Adam(eps=0.0), "eps: 0.0 was given; it is a finite number above 0"),
        (lambda: Adam(eps=math.nan), "eps: nan was given; it is a finite number above 0"),
        (
            lambda: GD(schedule=((0, 0.5),)),
            "schedule: (0, 0.5) was given; it takes an epoch from 1 and a factor from 0",
        ),
        (
            lambda: SGD(schedule=((2, -1),)),
            "schedule: (2, -1) was given; it takes an epoch from 1 and a factor from 0",
        ),
        (
            lambda: Adam(schedule=((2, math.inf),)),
            "schedule: (2, inf) was given; it takes an epoch from 1 and a factor from 0",
        ),
        (lambda: rates(SGD((0.1, 0.2)), 3, 1), "lr: 2 rates were given for 3 networks; give one, or one a network"),
    ],
)
def test_optimisers_refuse_bad_values_in_words(make, message):
    with pytest.raises(UserError) as caught:
        make()
    assert str(caught.value) == message


def trained_with(students=STUDENTS, teacher=TEACHER, data=DATA, optimiser=None, **options):
    return train(students, teacher, data, optimiser or SGD(), **{"epochs": 1, "steps": 1, **options})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"teacher": TEACHER[:3]}, "5 students were given 3 teachers; give one each"),
        (
            {"teacher": teachers.separated((6, 3, 2), seeds=range(5))},
            "students have 4 inputs and their teachers 6; they must be equal",
        ),
        (
            {"teacher": teachers.separated((4, 3, 7), seeds=range(5))},
            "students have 2 outputs and their teachers 7; they must be equal",
        ),
        (
            {"teacher": teachers.separated((4, 3, 3, 2), seeds=range(5))},
            "students have 2 layers and their teachers 3; make them equal",
        ),
        ({"data": Gaussian(dim=9)}, "the data has 9 inputs and the networks 4; they must be equal"),
        ({"optimiser": SGD(batch=61)}, "60 training samples are fewer than a batch of 61"),
        ({"optimiser": SGD((0.1, 0.2))}, "lr: 2 rates were given for 5 networks; give one, or one a network"),
        ({"stops": [1, 2]}, "stops: 2 were given for 5 networks; give one a network"),
        ({"steps": 0}, "steps: 0 was given; an epoch has 1 step or more"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_training_refuses_what_does_not_fit_in_words(wrong, message):
    with pytest.raises(UserError) as caught:
        trained_with(**wrong)
    assert str(caught.value) == message


def test_a_batch_may_have_as_many_samples_as_there_are():
    assert (trained_with(optimiser=SGD(batch=60)).diverged_at == -1).all()
