"""Convolutional and BatchNorm students: the contract of engines, and training, on the engine `autograd`."""

import dataclasses

import numpy as np
import pyarrow.compute as pc
import pytest
import torch

from support.engines import DEVICES, to_device
from support.kinds import KINDS, made, same, tensors
from support.problems import OBJECTIVES, gaussians, optimisers, problem, start
from support.reference_loop import reference
from understudy import measures
from understudy._errors import UserError
from understudy.data import Fixed, Gaussian
from understudy.lab.train import train
from understudy.nets import Shape
from understudy.training import SGD, Adam, CrossEntropy, Group, Logistic, SquaredError, Training
from understudy.training.engines import ENGINES, choose
from understudy.training.engines import autograd as engine
from understudy.training.engines.chunks import run_in_chunks
from understudy.training.optimisers import rates
from understudy.training.packing import Packing
from understudy.training.probes.reading import PASS, probe

pytestmark = pytest.mark.usefixtures("one_thread")

NETS, EPOCHS, STEPS = 3, 2, 25
OTHERS = {name: shape for name, shape in KINDS.items() if not shape.dense}
kinds = pytest.mark.parametrize("kind", OTHERS)
devices = pytest.mark.parametrize("device", DEVICES)


def posed_for(students, device="cpu", optimiser="momentum", objective="squared", lr=(0.02, 0.01, 0.03), batch=6):
    made_optimiser = optimisers(batch, lr, ((2, 0.5),))[optimiser]
    return to_device(problem(students.to("cpu"), made_optimiser, OBJECTIVES[objective]), device)


def run(posed, state, first=0, count=STEPS):
    return ENGINES["autograd"].run(posed, state, first, count)


@kinds
def test_only_autograd_supports_them(kind):
    packing, like = Packing(OTHERS[kind]), torch.zeros(1)
    assert choose(packing, SquaredError(), SGD(), like) == "autograd"
    assert [name for name, e in ENGINES.items() if e.supports(packing, SquaredError(), SGD(), like)] == ["autograd"]


@devices
@kinds
@pytest.mark.parametrize(
    ("optimiser", "objective"), [("sgd", "squared"), ("nesterov", "hard"), ("adam", "soft"), ("gd", "hard")]
)
def test_it_agrees_with_the_reference_loop(kind, device, optimiser, objective):
    if optimiser == "adam" and OTHERS[kind].norm == "before" and OTHERS[kind].bias:
        # BatchNorm removes the bias: its gradient is rounding error only, which Adam magnifies.
        optimiser = "momentum"
    students, lr = made(OTHERS[kind], NETS), (0.02, 0.01, 0.03)
    posed = posed_for(students, device, optimiser, objective, lr)
    state, losses = start(posed, students.to(device)), []
    for epoch in range(EPOCHS):
        now = dataclasses.replace(posed, rate=rates(posed.optimiser, NETS, epoch + 1).to(device))
        losses.append(run(now, state, epoch * STEPS).cpu())
    ended = posed.packing.population(state.blocks, posed.seeds, state.running).to("cpu")
    posed = to_device(posed, "cpu")
    for i in range(NETS):
        expected, reported = reference(
            students[i],
            posed.inputs[posed.set_of[i]],
            posed.targets[posed.teacher_of[i]],
            optimisers(6, lr[i], ((2, 0.5),))[optimiser],
            OBJECTIVES[objective],
            epochs=EPOCHS,
            steps=STEPS,
        )
        torch.testing.assert_close(torch.cat(losses, dim=1)[i], reported, atol=1e-9, rtol=1e-9)
        for ours, theirs, before in zip(tensors(ended[i]), tensors(expected), tensors(students[i]), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)
            # A bias that BatchNorm removes gets no gradient.
            assert (theirs - before).abs().max() > 1e-6 or theirs.ndim == 2


@kinds
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bits_of_a_network_do_not_depend_on_the_batch_composition(kind, dtype):
    students = made(OTHERS[kind], NETS, dtype=dtype)
    posed = posed_for(students)
    together = start(posed, students)
    losses = run(posed, together)
    for i in range(NETS):
        which = torch.tensor([i])
        alone = start(posed, students).pick(which)
        assert torch.equal(run(posed.pick(which), alone)[0], losses[i])
        for ours, theirs in zip(alone.tensors().values(), together.pick(which).tensors().values(), strict=True):
            assert torch.equal(ours, theirs)


@kinds
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_steps_in_one_call_equal_steps_in_several(kind, optimiser):
    students = made(OTHERS[kind], 2, dtype=torch.float32)
    posed = posed_for(students, optimiser=optimiser, lr=0.01)
    whole, pieces = start(posed, students), start(posed, students)
    losses = [run(posed, pieces, a, b - a) for a, b in ((0, 3), (3, 14), (14, 25))]
    assert torch.equal(run(posed, whole), torch.cat(losses, dim=1))
    for ours, theirs in zip(whole.tensors().values(), pieces.tensors().values(), strict=True):
        assert torch.equal(ours, theirs)


@devices
@kinds
def test_training_resumes_where_it_stopped(kind, device):
    shape = OTHERS[kind]
    students, teacher = made(shape, NETS, dtype=torch.float32), made(shape, NETS, seed=2, dtype=torch.float32)
    data = Gaussian(shape.inputs, train=40, evaluation=30)

    def begin():
        return Training([Group(students, teacher, data)], SGD((0.01, 1e30, 0.02), batch=4), steps=12, device=device)

    whole, left, rest = begin(), begin(), begin()
    for training, epochs in ((whole, 4), (left, 2)):
        training.probe()
        for _ in range(epochs):
            training.advance()
            training.probe()
    rest.load_state_dict({name: tensor.cpu().clone() for name, tensor in left.state_dict().items()})
    for _ in range(2):
        rest.advance()
        rest.probe()
    assert whole.diverged_at.tolist()[1] >= 0 and whole.alive.tolist() == [True, False, True]
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, rest.state_dict()[name]), name
    assert not same(whole.populations()[0].to("cpu")[0], students[0])


@kinds
def test_a_probe_correlates_channels_over_samples_and_positions(kind):
    shape = OTHERS[kind]
    student, teacher = made(shape, 2), made(shape, 2, seed=5)
    x = gaussians(3, 2, 37, shape.inputs)
    reading = probe(student, teacher, x, SquaredError())
    ours, theirs = student.activations(x), teacher.activations(x)
    for layer, mine, its in zip(reading.layers, ours.hidden, theirs.hidden, strict=True):
        for i in range(2):
            with np.errstate(invalid="ignore"):  # nodes that are zero on all samples
                rho = np.corrcoef(its[i].T.numpy(), mine[i].T.numpy())[: its.shape[2], its.shape[2] :]
            expected = np.nan_to_num(rho)
            np.testing.assert_allclose(layer.correlation[i], expected, atol=1e-9)
    torch.testing.assert_close(reading.eval_loss, (ours.output - theirs.output).square().mean((1, 2)))


def test_samples_of_convolutions_are_split_into_passes(monkeypatch):
    student, teacher = made(KINDS["conv"], 2), made(KINDS["conv"], 2, seed=3)
    x = gaussians(3, 2, 50, student.inputs)
    whole = probe(student, teacher, x, CrossEntropy())
    monkeypatch.setitem(PASS, "cpu", 5 * 2 * student.shape.activations)
    cut = probe(student, teacher, x, CrossEntropy())
    torch.testing.assert_close(whole.eval_loss, cut.eval_loss, atol=1e-12, rtol=0)
    for one, other in zip(whole.layers, cut.layers, strict=True):
        torch.testing.assert_close(one.correlation, other.correlation, atol=1e-12, rtol=0)


class Sorted(Fixed):
    """Inputs whose class is the sign of the first number."""

    classes = 2

    def training_labels(self, seed, epoch=1):
        return (self.train_x[:, 0] > 0).long()

    def evaluation_labels(self, seed):
        return (self.evaluation_x[:, 0] > 0).long()


LABELS = Sorted(gaussians(1, 400, 6), gaussians(2, 300, 6))
LEARNERS = made(Shape((6, 8, 8, 2), 0.0, norm="before"), 3)


@pytest.mark.parametrize("soft", [False, True])
def test_labels_are_learned_and_accuracy_is_reported(soft):
    group = Group(LEARNERS, LEARNERS, LABELS, CrossEntropy(soft), labelled=True)
    training = Training([group], SGD(0.1, batch=16), steps=100)
    tables = [training.probe().metrics]
    for _ in range(3):
        training.advance()
        tables.append(training.probe().metrics)
    students = training.populations()[0]
    correct = (students(LABELS.evaluation_x).argmax(-1) == LABELS.evaluation_labels(0)).double().mean(1)
    before = (LEARNERS(LABELS.evaluation_x).argmax(-1) == LABELS.evaluation_labels(0)).double().mean(1)
    for name, value in (("accuracy", correct), ("teacher_accuracy", before)):
        rows = tables[-1].filter(pc.equal(tables[-1]["metric"].cast("string"), name))
        np.testing.assert_allclose(rows["value"].to_numpy(), value)
    assert (correct > 0.9).all() and (correct > before).all()
    losses = tables[-1].filter(pc.equal(tables[-1]["metric"].cast("string"), "eval_loss"))["value"].to_numpy()
    expected = torch.stack(
        [torch.nn.functional.cross_entropy(out, LABELS.evaluation_labels(0)) for out in students(LABELS.evaluation_x)]
    )
    np.testing.assert_allclose(losses, expected)


@pytest.mark.parametrize("shape", [Shape((6, 8, 1)), Shape((6, 8, 8, 1), norm="before")], ids=["fc", "normed"])
def test_two_labels_are_learned_by_one_output(shape):
    learners = made(shape, 3)
    training = Training([Group(learners, learners, LABELS, Logistic(), labelled=True)], Adam(0.01, batch=16), steps=100)
    training.probe()
    for _ in range(3):
        training.advance()
        metrics = training.probe().metrics
    output, labels = training.populations()[0](LABELS.evaluation_x)[..., 0], LABELS.evaluation_labels(0)
    correct = ((output > 0) == labels.bool()).double().mean(1)
    wanted = labels.double().expand_as(output)
    entropy = torch.nn.functional.binary_cross_entropy_with_logits(output, wanted, reduction="none").mean(1)
    for name, value in (("accuracy", correct), ("eval_loss", entropy)):
        rows = metrics.filter(pc.equal(metrics["metric"].cast("string"), name))
        np.testing.assert_allclose(rows["value"].to_numpy(), value)
    assert (correct > 0.9).all()


def test_groups_may_have_different_objectives():
    shape = Shape((5, 6, 3))
    students, teacher = made(shape, 2), made(shape, 2, seed=4)
    data, optimiser = Gaussian(5, train=100, evaluation=50), SGD(0.05, batch=8)
    both = Training(
        [Group(students, teacher, data), Group(students, teacher, data, CrossEntropy())], optimiser, steps=20
    )
    both.advance()
    alone = [
        train(students, teacher, data, optimiser, epochs=1, steps=20, objective=objective).students
        for objective in (SquaredError(), CrossEntropy())
    ]
    for ours, theirs in zip(both.populations(), alone, strict=True):
        for mine, its in zip(tensors(ours), tensors(theirs), strict=True):
            assert torch.equal(mine, its)
    assert not torch.equal(alone[0].layers[0].weight, alone[1].layers[0].weight)


def test_the_fan_out_of_a_channel_is_the_norm_of_all_its_outgoing_weights():
    student = made(KINDS["conv"], 2)
    below, above = measures.fan_out(student, 0), measures.fan_out(student, 1)
    second, top = student.layers[1].weight, student.layers[2].weight
    positions = student.shape.positions[1]
    for i in range(2):
        for k in range(4):
            assert float(below[i, k]) == pytest.approx(float(second[i, :, k].norm()))
        for k in range(3):
            assert float(above[i, k]) == pytest.approx(float(top[i, :, k * positions : (k + 1) * positions].norm()))


@pytest.mark.parametrize(
    ("students", "teacher", "data", "options", "message"),
    [
        (
            made(KINDS["conv"], 1),
            made(Shape((84, 4, 3, 5)), 1),
            Gaussian(84),
            {},
            r"got 2 convolutions and 1 linear on 7 × 6 images, and 3 linear$",
        ),
        (
            made(KINDS["conv"], 1),
            made(KINDS["conv"], 1),
            Gaussian(83),
            {},
            "of inputs, got 83 and 84",
        ),
        (LEARNERS, LEARNERS, Gaussian(6), {"labelled": True}, "needs data with labels, got Gaussian"),
        (made(Shape((6, 4, 3)), 1), made(Shape((6, 4, 3)), 1), LABELS, {}, "got 3 outputs for 2 classes"),
        (LEARNERS, LEARNERS, LABELS, {"objective": Logistic()}, "the logistic loss needs 1 output, got 2"),
        (
            made(Shape((6, 4, 1)), 1),
            made(Shape((6, 4, 1)), 1),
            LABELS,
            {"objective": CrossEntropy(), "labelled": True},
            "cross-entropy needs 2 or more outputs, got 1",
        ),
    ],
)
def test_groups_that_do_not_fit_together_are_rejected(students, teacher, data, options, message):
    with pytest.raises(UserError, match=message):
        Group(students, teacher, data, **options)


def test_batch_norm_rejects_batches_of_one():
    group = Group(LEARNERS, LEARNERS, LABELS, CrossEntropy(), labelled=True)
    with pytest.raises(UserError, match="at least 2 for networks with BatchNorm, got 1"):
        Training([group], SGD(0.1, batch=1), steps=1)


@kinds
def test_networks_trained_together_or_apart_make_the_same_steps(kind, monkeypatch):
    students = made(OTHERS[kind], NETS)
    posed = posed_for(students)
    found = []
    for enough in (1, 1 << 40):
        monkeypatch.setattr(engine, "_ENOUGH", enough)
        slices = engine._slices(OTHERS[kind], NETS, 6)
        assert len(slices) == (NETS if enough == 1 and OTHERS[kind].image else 1)
        state = start(posed, students)
        indices = posed.draw_batches(0, 7)
        work = engine._Workspace(posed, state, 3, indices.shape[2])
        found.append((run_in_chunks(work, posed, state, 0, indices, 3), *state.tensors().values()))
    for apart, together in zip(*found, strict=True):
        torch.testing.assert_close(apart, together, rtol=1e-9, atol=1e-11)
