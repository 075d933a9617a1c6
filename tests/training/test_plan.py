"""How work is laid out: what a plan counts, that waves change no number, and what does not fit at all."""

import gc
import json
import weakref

import pytest
import torch

from support.commands import understudy
from training.test_training import assert_same, same_weights
from understudy import students as starts
from understudy import teachers
from understudy.data import Gaussian
from understudy.errors import UserError
from understudy.nets import Layer, Population
from understudy.training import GD, SGD, Adam, CrossEntropy, Group, SquaredError, Training
from understudy.training.plan import available
from understudy.training.records import METRICS, NODES, joined

TEACHER = teachers.separated((6, 4, 3), seeds=range(1, 9))
WIDTHS = [starts.gaussian(TEACHER, multiple=m, scale=0.3) for m in (1, 3)]
DATA = Gaussian(dim=6, train=500, evaluation=400)


def begin(data=DATA, optimiser=None, objective=SquaredError(), **options):  # noqa: B008, it is frozen
    groups = [Group(students, TEACHER, data, objective) for students in WIDTHS]
    return Training(groups, optimiser or SGD(0.05, batch=8), steps=7, **options)


def need(training):
    return sum(training.plan.memory.values())


def two_epochs(training):
    records = [training.probe()]
    for _ in range(2):
        training.advance()
        records.append(training.probe())
    return joined([r.metrics for r in records], METRICS), joined([r.nodes for r in records], NODES)


def test_a_plan_counts_networks_bytes_and_operations():
    plan = begin().plan
    first, second = plan.rows
    assert (first.networks, first.sizes, second.sizes) == (8, (6, 4, 3), (6, 12, 3))
    assert first.at_once * first.pieces >= 8 and len(plan.waves) == 1
    # Up 6·4 + 4·3, the gradients of both, and back through the second: 2·8 samples·7 steps·8 networks of each.
    assert first.work == 2 * 8 * 7 * 8 * (24 + 12 + 24 + 12 + 12)
    # 400 samples through both layers, and 4 teacher nodes against 4 students.
    assert first.looking == 2 * 8 * 400 * (24 + 12 + 16)
    # Eight seeds of 500 and 400 samples of 6 inputs, shared by both widths; one teacher each, of 3 outputs.
    assert plan.memory["inputs"] == 8 * 500 * 6 * 4 and plan.memory["evaluation"] == 8 * 400 * 6 * 4
    assert plan.memory["targets"] == 8 * 500 * 3 * 4
    assert 0 < plan.seconds(epochs=2, looks=3) < 60 and available(torch.device("cpu")) > 0


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("way", [SGD(0.05, batch=8), Adam(0.01, batch=8), GD(0.05)], ids=["sgd", "adam", "gd"])
def test_waves_change_no_number(way, fresh):
    data = Gaussian(dim=6, train=500, evaluation=400, fresh=fresh)
    whole = begin(data, way)
    waves = begin(data, way, memory=need(whole) - 100_000)
    assert len(whole.plan.waves) == 1 < len(waves.plan.waves) and need(waves) <= waves.plan.free
    for one, other in zip(two_epochs(whole), two_epochs(waves), strict=True):
        assert_same(one, other)
    assert all(same_weights(a, b) for a, b in zip(whole.populations(), waves.populations(), strict=True))


def test_each_wave_holds_few_seeds_and_every_network_is_in_one():
    training = begin(memory=need(begin()) - 150_000)
    seen = []
    for wave in training.plan.waves:
        seeds = {seed for part in wave for seed in part.sets}
        assert len(seeds) < 8
        seen += [int(i) for part in wave for i in part.member.ids[part.which]]
    assert sorted(seen) == list(range(16))


def test_what_does_not_fit_is_refused_before_anything_is_made():
    with pytest.raises(
        UserError, match=r"memory: 16 networks need .* GB at the least, and 1e-06 GB may be used; train fewer"
    ):
        begin(memory=1_000)


def test_the_first_look_is_planned_for_the_training_set_too():
    large = begin(Gaussian(dim=6, train=50_000, evaluation=10), memory=1 << 40)
    # Six inputs, three times 4 or 12 + 3 nodes of the students, and 4 + 3 of the teachers: floats of every sample.
    assert large.plan.memory["work"] >= 50_000 * (6 + 3 * 15 + 3 * 7) * 4


def test_what_a_look_needed_is_let_go_when_its_rows_are_made():
    training = begin(memory=need(begin()) - 150_000)
    records = training.probe()
    kept = [weakref.ref(make) for make in records._rows]
    assert kept and not training.samples._kept
    tables = records.tables()
    gc.collect()
    assert all(ref() is None for ref in kept) and records.tables() == tables


def test_students_of_one_teacher_and_seed_share_its_answers():
    again = [0, 1, 0, 1, 2]
    training = Training([Group(WIDTHS[0][again], TEACHER[again], DATA)], SGD(0.05, batch=8), steps=7)
    assert training.members[0].like == [0, 1, 0, 1, 4]
    assert training.plan.memory["targets"] == 3 * 500 * 3 * 4
    alone = Training([Group(WIDTHS[0][[0, 1, 2]], TEACHER[[0, 1, 2]], DATA)], SGD(0.05, batch=8), steps=7)
    for each in (training, alone):
        each.advance()
    assert same_weights(training.populations()[0][[2, 3, 4]], alone.populations()[0])
    # One teacher, another seed: other inputs, so other answers. Teachers that differ in one number: likewise.
    other = Population(WIDTHS[0][[0, 0]].layers, torch.tensor([1, 2]))
    assert Training([Group(other, TEACHER[[0, 0]], DATA)], SGD(), steps=1).members[0].like == [0, 1]
    weight, bias = TEACHER[[0, 0]].layers[0]
    weight[1, 0, 0] += 1
    layers = (Layer(weight, bias), TEACHER[[0, 0]].layers[1])
    changed = Group(WIDTHS[0][[0, 0]], Population(layers, TEACHER.seeds[[0, 0]]), DATA)
    assert Training([changed], SGD(), steps=1).members[0].like == [0, 1]


def test_memory_is_counted_for_the_widest_kinds_of_training():
    for optimiser, objective in (
        (Adam(batch=8), CrossEntropy()),
        (GD(), SquaredError()),
        (SGD(batch=8, momentum=0.9), SquaredError()),
    ):
        training = begin(optimiser=optimiser, objective=objective)
        numbers = sum(b.numel() for m in training.members for b in training_tensors(m))
        assert training.plan.memory["parameters"] == 2 * 4 * numbers


def training_tensors(member):
    return member.state.tensors().values()


def test_the_command_shows_the_plan_and_writes_nothing(tmp_path):
    told = understudy("run", "two-layer", "--quick", "--plan", cwd=tmp_path).stdout
    assert "24 networks, 25 epochs of 1,000 steps, on cpu" in told and "compiled" in told and "100-20-50" in told
    assert "GB that may be used" in told and "time: about" in told
    one = json.loads(understudy("run", "two-layer", "--quick", "--plan", "--json", cwd=tmp_path).stdout)
    assert [group["networks"] for group in one["groups"]] == [12, 12] and one["waves"] == 1 and one["seconds"] > 0
    assert one["groups"][0]["engine"] == "compiled" and set(one["memory"]) > {"inputs", "targets", "parameters"}
    assert not list(tmp_path.iterdir())


def test_a_study_that_cannot_fit_is_refused_before_its_networks_are_made(tmp_path):
    said = understudy("run", "two-layer", "--seeds", "10000000", "--plan", cwd=tmp_path, status=2).stderr
    assert said.startswith("understudy: memory: 720,000,000 networks need ") and "train fewer networks" in said
    assert not list(tmp_path.iterdir())


def test_answers_of_one_teacher_to_other_seeds_are_counted_as_often_as_they_are_kept():
    teacher = teachers.regular((6, 3, 2), seeds=[1, 2, 3])
    groups = [Group(starts.gaussian(teacher, seeds=seeds), teacher, DATA) for seeds in ([1, 2, 3], [7, 8, 9])]
    training = Training(groups, SGD(0.05, batch=8), steps=1)
    training.probe()
    kept = [tensor for key, (_, tensor) in training.samples._kept.items() if key[0] == "targets"]
    assert training.plan.memory["targets"] == sum(t.numel() * t.element_size() for t in kept) and len(kept) == 2
