"""What every engine promises: the numbers of the reference loop, and the same bits for a network in any company."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from problems import OBJECTIVES, SLOPES, optimisers, population, problem, start
from understudy.training.engines import ENGINES
from understudy.training.optimisers import rates
from understudy.training.reference import reference

pytestmark = pytest.mark.usefixtures("one_thread")
engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
KINDS = tuple(optimisers(batch=4, lr=0.1))

NETS = 7
EPOCHS, STEPS = 5, 10
SCHEDULE = ((4, 0.1), (2, 0.5))


@engines
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_gives_what_the_reference_loop_gives(engine, kind, objective):
    each = (0.02, 0.01, 0.005, 0.03, 0.001)
    students = population((5, 8, 7, 3), len(each), slope=0.1)
    optimiser = optimisers(6, each, SCHEDULE)[kind]
    posed = problem(students, optimiser, OBJECTIVES[objective])
    state, losses = start(posed, students), []
    for epoch in range(EPOCHS):
        now = dataclasses.replace(posed, rate=rates(optimiser, len(each), epoch + 1))
        losses.append(engine.take(now, state, epoch * STEPS, STEPS))
    ended = posed.packing.population(state.blocks, students.seeds)
    for i, lr in enumerate(each):
        expected, reported = reference(
            students[i],
            posed.inputs[posed.set_of[i]],
            posed.targets[posed.teacher_of[i]],
            optimisers(6, lr, SCHEDULE)[kind],
            OBJECTIVES[objective],
            epochs=EPOCHS,
            steps=STEPS,
        )
        torch.testing.assert_close(torch.cat(losses, dim=1)[i], reported, atol=1e-9, rtol=0)
        for ours, theirs, before in zip(ended[i].layers, expected.layers, students.layers, strict=True):
            assert (theirs.weight - before.weight[i]).abs().max() > 1e-3
            torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=0)


@st.composite
def tasks(draw):
    """Networks of awkward shapes, and what they are trained on."""
    size = st.sampled_from((1, 2, 3, 7, 16, 33, 64, 101)) | st.integers(1, 40)
    sizes = draw(st.lists(size, min_size=3, max_size=4))
    students = population(
        sizes,
        NETS,
        slope=draw(st.sampled_from(tuple(SLOPES.values()))),
        bias=draw(st.booleans()),
        dtype=draw(st.sampled_from((torch.float32, torch.float64))),
    )
    batch = draw(st.sampled_from((1, 5, 16, None)))
    lr = tuple(0.01 / (i + 1) for i in range(NETS))
    optimiser = optimisers(batch, lr)[draw(st.sampled_from(KINDS))]
    objective = draw(st.sampled_from(tuple(OBJECTIVES.values())))
    return problem(students, optimiser, objective, samples=draw(st.integers(1, 40))), students


def run(engine, posed, state, pieces, steps=12):
    """Train in pieces; the losses and the state lie at the places that networks have in the whole."""
    losses = posed.inputs.new_empty(len(posed), steps)
    for piece in pieces:
        which = torch.tensor(piece)
        some = state.pick(which)
        losses[which] = engine.take(posed.pick(which), some, 0, steps)
        state.put(which, some)
    return losses, state


def same_bits(one, other):
    """Equal, or both not a number: some of the drawn networks diverge."""
    (losses, state), (their_losses, their_state) = one, other
    pairs = [(losses, their_losses), *zip(state.tensors().values(), their_state.tensors().values(), strict=True)]
    return all(torch.equal(a.nan_to_num(nan=12345.0), b.nan_to_num(nan=12345.0)) for a, b in pairs)


@engines
@given(task=tasks(), order=st.permutations(range(NETS)), cuts=st.sets(st.integers(1, NETS - 1)))
def test_a_network_has_the_same_bits_alone_and_in_any_company(engine, task, order, cuts):
    posed, students = task
    together = run(engine, posed, start(posed, students), [range(NETS)])
    alone = run(engine, posed, start(posed, students), [[i] for i in range(NETS)])
    assert same_bits(together, alone)
    edges = [0, *sorted(cuts), NETS]
    pieces = [order[a:b] for a, b in itertools.pairwise(edges)]
    assert same_bits(together, run(engine, posed, start(posed, students), pieces))


@engines
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(200, 1, 10), (257, 20, 1), (100, 17, 1, 128), (1, 1, 1)])
def test_networks_with_a_layer_of_one_node_have_the_same_bits_alone(engine, sizes, dtype):
    # Here BLAS multiplies by vectors, which it does in another way for one network than for several.
    students = population(sizes, 3, slope=0.1, dtype=dtype)
    posed = problem(students, optimisers(16, 0.01)["nesterov"], OBJECTIVES["squared"])
    together = run(engine, posed, start(posed, students), [range(3)])
    assert same_bits(together, run(engine, posed, start(posed, students), [[2], [0], [1]]))


@engines
@given(task=tasks(), cuts=st.sets(st.integers(1, 24)))
def test_steps_in_one_call_are_steps_in_several(engine, task, cuts):
    posed, students = task
    whole, parts = start(posed, students), start(posed, students)
    edges = [0, *sorted(cuts), 25]
    losses = [engine.take(posed, parts, a, b - a) for a, b in itertools.pairwise(edges)]
    assert same_bits((engine.take(posed, whole, 0, 25), whole), (torch.cat(losses, dim=1), parts))


@engines
def test_networks_that_are_not_picked_stay_as_they_were(engine):
    students = population((3, 4, 2), 3)
    posed = problem(students, optimisers(4, 0.1)["adam"], OBJECTIVES["squared"])
    state = start(posed, students)
    run(engine, posed, state, [[1]])
    untouched = start(posed, students)
    for now, before in zip(state.tensors().values(), untouched.tensors().values(), strict=True):
        assert torch.equal(now[[0, 2]], before[[0, 2]]) and not torch.equal(now[1], before[1])
