"""Contract of every engine: the numbers of the reference loop, and bits that do not depend on the batch composition."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from support.engines import DEVICES, KINDS, engines, supported_cases, supports, to_device
from support.problems import OBJECTIVES, SLOPES, optimisers, population, problem, start
from support.reference_loop import reference
from understudy.nets import Shape
from understudy.training import GD, SGD, Adam, CrossEntropy, Logistic, SquaredError
from understudy.training.engines import ENGINES, choose
from understudy.training.optimisers import rates
from understudy.training.packing import Packing

pytestmark = pytest.mark.usefixtures("one_thread")

NETS = 7
EPOCHS, STEPS = 2, 25
SCHEDULE = ((2, 0.5),)


@supported_cases([(10, 100, 6), (10, 150, 6), (10, 70, 150, 90, 6)], kinds=["sgd", "adam"], objectives=["squared"])
def test_an_engine_agrees_with_the_reference_loop_for_wide_networks(engine, device, sizes, kind, objective):
    # Engines that cut products into tiles or blocks use others for wide networks.
    check_against_reference(engine, device, sizes, kind, objective, batch=16)


@supported_cases([(5, 3), (5, 8, 3), (5, 8, 7, 3)])
def test_an_engine_agrees_with_the_reference_loop(engine, device, sizes, kind, objective):
    check_against_reference(engine, device, sizes, kind, objective, batch=6)


def check_against_reference(engine, device, sizes, kind, objective, batch):
    each = (0.02, 0.01, 0.005, 0.03, 0.001)
    students = population(sizes, len(each), slope=0.1)
    optimiser = optimisers(batch, each, SCHEDULE)[kind]
    posed = problem(students, optimiser, OBJECTIVES[objective])
    there = to_device(posed, device)
    state, losses = start(there, students.to(device)), []
    for epoch in range(EPOCHS):
        now = dataclasses.replace(there, rate=rates(optimiser, len(each), epoch + 1).to(device))
        losses.append(ENGINES[engine].run(now, state, epoch * STEPS, STEPS).cpu())
    ended = posed.packing.population(tuple(block.cpu() for block in state.blocks), students.seeds)
    for i, lr in enumerate(each):
        expected, reported = reference(
            students[i],
            posed.inputs[posed.set_of[i]],
            posed.targets[posed.teacher_of[i]],
            optimisers(batch, lr, SCHEDULE)[kind],
            OBJECTIVES[objective],
            epochs=EPOCHS,
            steps=STEPS,
        )
        torch.testing.assert_close(torch.cat(losses, dim=1)[i], reported, atol=1e-9, rtol=0)
        for ours, theirs, before in zip(ended[i].layers, expected.layers, students.layers, strict=True):
            assert (theirs.weight - before.weight[i]).abs().max() > 1e-3
            torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=0)


@st.composite
def tasks(draw, engine, device):
    """Draw networks of awkward shapes, and problems for them, that an engine supports."""
    plain, squared = optimisers(4, 0.1), SquaredError()
    depths = [depth for depth in (2, 3) if supports(engine, device, (3,) * (depth + 1), plain["sgd"], squared)]
    kinds = [kind for kind in KINDS if supports(engine, device, (3, 4, 2), plain[kind], squared)]
    batches = [b for b in (1, 5, 16, 37, None) if supports(engine, device, (3, 4, 2), SGD(batch=b), squared)]
    objectives = [o for o in OBJECTIVES.values() if supports(engine, device, (3, 4, 2), plain["sgd"], o)]
    size = st.sampled_from((1, 2, 3, 7, 16, 33, 64, 101)) | st.integers(1, 40)
    depth = draw(st.sampled_from(depths))
    students = population(
        draw(st.lists(size, min_size=depth + 1, max_size=depth + 1)),
        NETS,
        slope=draw(st.sampled_from(tuple(SLOPES.values()))),
        bias=draw(st.booleans()),
        dtype=draw(st.sampled_from((torch.float32, torch.float64))),
    )
    lr = tuple(0.01 / (i + 1) for i in range(NETS))
    optimiser = optimisers(draw(st.sampled_from(batches)), lr)[draw(st.sampled_from(kinds))]
    objective = draw(st.sampled_from(objectives))
    assume(supports(engine, device, students.sizes, optimiser, objective, students.dtype))
    posed = problem(students, optimiser, objective, samples=draw(st.integers(1, 40)))
    return to_device(posed, device), students.to(device)


def run_pieces(engine, posed, state, pieces, steps=12):
    """Train in pieces; losses and state are in the order of the whole population."""
    losses = posed.inputs.new_empty(len(posed), steps)
    for piece in pieces:
        which = torch.tensor(piece, device=posed.seeds.device)
        some = state.pick(which)
        losses[which] = ENGINES[engine].run(posed.pick(which), some, 0, steps)
        state.put(which, some)
    return losses, state


def same(engine, one, other):
    """Whether results have equal bits, NaN included, since some of the drawn networks diverge.

    On a GPU a batched product of many matrices may sum in another order than one of few. For the engines that use such
    products, compare there up to rounding, and only networks of moderate losses.
    """
    (losses, state), (their_losses, their_state) = one, other
    pairs = [(losses, their_losses), *zip(state.tensors().values(), their_state.tensors().values(), strict=True)]
    if losses.device.type == "cpu" or engine not in ("batched", "autograd"):
        return all(torch.equal(a.nan_to_num(nan=12345.0), b.nan_to_num(nan=12345.0)) for a, b in pairs)
    tame = (losses.nan_to_num(nan=torch.inf).abs() < 1e3).all(1)
    return all(torch.allclose(a[tame], b[tame], rtol=1e-3, atol=1e-4) for a, b in pairs)


@engines
@given(data=st.data(), order=st.permutations(range(NETS)), cuts=st.sets(st.integers(1, NETS - 1)))
def test_the_bits_of_a_network_do_not_depend_on_the_batch_composition(engine, device, data, order, cuts):
    posed, students = data.draw(tasks(engine, device))
    together = run_pieces(engine, posed, start(posed, students), [range(NETS)])
    alone = run_pieces(engine, posed, start(posed, students), [[i] for i in range(NETS)])
    assert same(engine, together, alone)
    edges = [0, *sorted(cuts), NETS]
    pieces = [order[a:b] for a, b in itertools.pairwise(edges)]
    assert same(engine, together, run_pieces(engine, posed, start(posed, students), pieces))


@supported_cases([(200, 1, 10), (257, 20, 1), (100, 17, 1, 128), (1, 1, 1)], ("sgd", "nesterov"), ("squared",))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_networks_with_a_layer_of_one_node_have_the_same_bits_alone(engine, device, sizes, kind, objective, dtype):
    # Here BLAS multiplies by vectors, with another kernel for one network than for several.
    students = population(sizes, 3, slope=0.1, dtype=dtype).to(device)
    posed = to_device(problem(students.to("cpu"), optimisers(16, 0.01)[kind], OBJECTIVES[objective]), device)
    together = run_pieces(engine, posed, start(posed, students), [range(3)])
    assert same(engine, together, run_pieces(engine, posed, start(posed, students), [[2], [0], [1]]))


@engines
@given(data=st.data(), cuts=st.sets(st.integers(1, 24)))
def test_steps_in_one_call_equal_steps_in_several(engine, device, data, cuts):
    posed, students = data.draw(tasks(engine, device))
    whole, pieces = start(posed, students), start(posed, students)
    edges = [0, *sorted(cuts), 25]
    losses = [ENGINES[engine].run(posed, pieces, a, b - a) for a, b in itertools.pairwise(edges)]
    assert same(engine, (ENGINES[engine].run(posed, whole, 0, 25), whole), (torch.cat(losses, dim=1), pieces))


@supported_cases([(3, 4, 2)], ("sgd", "adam"), ("squared",))
def test_networks_that_are_not_picked_do_not_change(engine, device, sizes, kind, objective):
    students = population(sizes, 3).to(device)
    posed = to_device(problem(students.to("cpu"), optimisers(4, 0.1)[kind], OBJECTIVES[objective]), device)
    state = start(posed, students)
    run_pieces(engine, posed, state, [[1]])
    untouched = start(posed, students)
    for now, before in zip(state.tensors().values(), untouched.tensors().values(), strict=True):
        assert torch.equal(now[[0, 2]], before[[0, 2]]) and not torch.equal(now[1], before[1])


@supported_cases([(9, 11, 5)], ("sgd", "momentum"), ("squared",))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_networks_that_diverge_do_not_affect_the_others(engine, device, sizes, kind, objective, dtype):
    calm, wild = optimisers(5, 0.01)[kind], optimisers(5, (1e30, 0.01, 1e30, 0.01, 1e30))[kind]
    students = population(sizes, 5, slope=0.1, dtype=dtype).to(device)
    (losses, state), (rough, bruised) = (
        run_pieces(engine, posed, start(posed, students), [range(5)], steps=40)
        for optimiser in (calm, wild)
        for posed in [to_device(problem(students.to("cpu"), optimiser, OBJECTIVES[objective]), device)]
    )
    finite = torch.tensor([1, 3], device=device)
    assert losses.isfinite().all() and not rough[[0, 2, 4]].isfinite().all(1).any()
    assert torch.equal(losses[finite], rough[finite])
    for ours, theirs in zip(state.pick(finite).blocks, bruised.pick(finite).blocks, strict=True):
        assert torch.equal(ours, theirs)


PLAIN, LIKE = SGD(batch=16), torch.zeros(1)


class Slower(Adam):
    """An optimiser of a user, with an update of its own."""

    def update(self, block, gradient, slots, rate, step):
        super().update(block, gradient / 2, slots, rate, step)


@pytest.mark.parametrize(
    ("name", "sizes", "objective", "optimiser", "like"),
    [
        ("compiled", (100, 20, 50), SquaredError(), PLAIN, LIKE),
        ("compiled", (100, 20, 50), SquaredError(), PLAIN, LIKE.double()),
        ("compiled", (1, 1, 1), SquaredError(), SGD(batch=1000), LIKE),
        ("compiled", (100, 20, 20, 50), SquaredError(), PLAIN, LIKE),
        ("compiled", (100, 20, 50), CrossEntropy(), PLAIN, LIKE),
        ("compiled", (100, 20, 50), SquaredError(), SGD(momentum=0.9), LIKE),
        ("compiled", (100, 20, 50), SquaredError(), SGD(decay=0.1), LIKE),
        ("compiled", (100, 20, 50), SquaredError(), Adam(), LIKE),
        ("batched", (100, 20, 50), Logistic(), PLAIN, LIKE),
        ("batched", (100, 20, 50), SquaredError(), Slower(), LIKE),
        ("batched", (100, 20, 50), SquaredError(), GD(), LIKE),
    ],
)
def test_the_fastest_supporting_engine_is_chosen(name, sizes, objective, optimiser, like):
    assert choose(Packing(Shape(sizes)), objective, optimiser, like) == name


def test_engines_were_tested_on_a_gpu():
    if "cuda" not in DEVICES:
        pytest.skip("no GPU available: engines were tested on the CPU only")
