"""Plans: FLOPs and bytes, waves that do not change numbers, and networks that do not fit in memory."""

import gc
import json
import weakref

import pytest
import torch

from support.commands import understudy
from training.test_training import assert_same, same_weights
from understudy import students as starts
from understudy import teachers
from understudy._errors import UserError
from understudy.data import Gaussian
from understudy.nets import Layer, Population, Shape
from understudy.training import GD, SGD, Adam, CrossEntropy, Group, SquaredError, Training
from understudy.training.plan import available, require_memory
from understudy.training.records import METRICS, NODES, concatenate

TEACHER = teachers.distinct_rows((6, 4, 3), seeds=range(1, 9))
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
    return concatenate([r.metrics for r in records], METRICS), concatenate([r.nodes for r in records], NODES)


def test_a_plan_counts_networks_bytes_and_flops():
    plan = begin().plan
    first, second = plan.rows
    assert (first.networks, first.sizes, second.sizes) == (8, (6, 4, 3), (6, 12, 3))
    assert first.piece_size * first.pieces >= 8 and len(plan.waves) == 1
    # Forward 6·4 + 4·3, gradients of both, backward through the second: times 2·8 samples·7 steps·8 networks.
    assert first.step_flops == 2 * 8 * 7 * 8 * (24 + 12 + 24 + 12 + 12)
    # 400 samples through both layers, and correlations of 4 teacher with 4 student nodes.
    assert first.probe_flops == 2 * 8 * 400 * (24 + 12 + 16)
    # Eight seeds of 500 and 400 samples of 6 inputs, shared by both widths; one teacher each, of 3 outputs.
    assert plan.memory["inputs"] == 8 * 500 * 6 * 4 and plan.memory["evaluation"] == 8 * 400 * 6 * 4
    assert plan.memory["targets"] == 8 * 500 * 3 * 4
    assert 0 < plan.estimate_seconds(epochs=2, probes=3) < 60 and available(torch.device("cpu")) > 0


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("optimiser", [SGD(0.05, batch=8), Adam(0.01, batch=8), GD(0.05)], ids=["sgd", "adam", "gd"])
def test_waves_do_not_change_numbers(optimiser, fresh):
    data = Gaussian(dim=6, train=500, evaluation=400, fresh=fresh)
    whole = begin(data, optimiser)
    waves = begin(data, optimiser, memory=need(whole) - 100_000)
    assert len(whole.plan.waves) == 1 < len(waves.plan.waves) and need(waves) <= waves.plan.free
    for one, other in zip(two_epochs(whole), two_epochs(waves), strict=True):
        assert_same(one, other)
    assert all(same_weights(a, b) for a, b in zip(whole.populations(), waves.populations(), strict=True))


def test_each_wave_has_few_seeds_and_every_network_is_in_one():
    training = begin(memory=need(begin()) - 150_000)
    seen = []
    for wave in training.plan.waves:
        seeds = {seed for shard in wave for seed in shard.sets}
        assert len(seeds) < 8
        seen += [int(i) for shard in wave for i in shard.group.ids[shard.which]]
    assert sorted(seen) == list(range(16))


def test_networks_that_do_not_fit_are_rejected():
    with pytest.raises(
        UserError, match=r"memory: 16 networks need at least .* GB, but only 10⁻⁶ GB may be used; train fewer"
    ):
        begin(memory=1_000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_memory_is_checked_from_shapes_alone(dtype, monkeypatch):
    # 4·6 + 4 + 3·4 + 3 parameters with biases and 4·6 + 3·4 without; three copies.
    networks = [(Shape((6, 4, 3)), 10), (Shape((6, 4, 3), bias=False), 100)]
    need = 3 * (10 * 43 + 100 * 36) * dtype.itemsize
    monkeypatch.setattr("understudy.training.plan.available", lambda device: need)
    require_memory(networks, dtype)
    monkeypatch.setattr("understudy.training.plan.available", lambda device: need - 1)
    with pytest.raises(UserError, match="memory: 110 networks need at least"):
        require_memory(networks, dtype)
    require_memory(networks, dtype, copies=2)


def test_the_memory_limit_of_a_container_is_respected(tmp_path, monkeypatch):
    files = {"memory.max": "1000000", "memory.current": "700000", "memory.stat": "anon 5\ninactive_file 200000\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("understudy._memory._CGROUP", tmp_path)
    assert available(torch.device("cpu")) == int(0.7 * 500_000)
    (tmp_path / "memory.max").write_text("max")
    assert available(torch.device("cpu")) > 1_000_000


def test_the_plan_includes_the_first_probe_of_the_training_set():
    large = begin(Gaussian(dim=6, train=50_000, evaluation=10), memory=1 << 40)
    # Per sample: six inputs, and three times the 12 + 3 nodes of students and the 4 + 3 of teachers.
    assert large.plan.memory["work"] >= 50_000 * (6 + 3 * 15 + 3 * 7) * 4


def test_readings_are_freed_when_their_rows_are_made():
    training = begin(memory=need(begin()) - 150_000)
    records = training.probe()
    references = [weakref.ref(make) for make in records._rows]
    assert references and not training.samples._tensors
    tables = records.tables()
    gc.collect()
    assert all(reference() is None for reference in references) and records.tables() == tables


def test_students_of_one_teacher_and_seed_share_teacher_outputs():
    again = [0, 1, 0, 1, 2]
    training = Training([Group(WIDTHS[0][again], TEACHER[again], DATA)], SGD(0.05, batch=8), steps=7)
    assert training.groups[0].representative == [0, 1, 0, 1, 4]
    assert training.plan.memory["targets"] == 3 * 500 * 3 * 4
    alone = Training([Group(WIDTHS[0][[0, 1, 2]], TEACHER[[0, 1, 2]], DATA)], SGD(0.05, batch=8), steps=7)
    for each in (training, alone):
        each.advance()
    assert same_weights(training.populations()[0][[2, 3, 4]], alone.populations()[0])
    # Another seed has other inputs, so other teacher outputs; so do teachers that differ in one number.
    other = Population(WIDTHS[0][[0, 0]].layers, torch.tensor([1, 2]))
    assert Training([Group(other, TEACHER[[0, 0]], DATA)], SGD(), steps=1).groups[0].representative == [0, 1]
    weight, bias = TEACHER[[0, 0]].layers[0]
    weight[1, 0, 0] += 1
    layers = (Layer(weight, bias), TEACHER[[0, 0]].layers[1])
    changed = Group(WIDTHS[0][[0, 0]], Population(layers, TEACHER.seeds[[0, 0]]), DATA)
    assert Training([changed], SGD(), steps=1).groups[0].representative == [0, 1]


def test_memory_includes_the_state_of_every_optimiser():
    for optimiser, objective in (
        (Adam(batch=8), CrossEntropy()),
        (GD(), SquaredError()),
        (SGD(batch=8, momentum=0.9), SquaredError()),
    ):
        training = begin(optimiser=optimiser, objective=objective)
        numbers = sum(b.numel() for group in training.groups for b in group.state.tensors().values())
        assert training.plan.memory["parameters"] == 2 * 4 * numbers


def test_the_command_shows_the_plan_and_writes_nothing(tmp_path):
    command = ("run", "two-layer", "--quick", "--plan", "--device", "cpu")
    shown = understudy(*command, cwd=tmp_path).stdout
    assert "24 networks, 25 epochs of 1,000 steps, on cpu" in shown and "compiled" in shown and "100-20-50" in shown
    assert "GB that may be used" in shown and "time: about" in shown
    one = json.loads(understudy(*command, "--json", cwd=tmp_path).stdout)
    assert [group["networks"] for group in one["groups"]] == [12, 12] and one["waves"] == 1 and one["seconds"] > 0
    assert one["groups"][0]["engine"] == "compiled" and set(one["memory"]) > {"inputs", "targets", "parameters"}
    assert not list(tmp_path.iterdir())


def test_a_study_that_does_not_fit_is_rejected_before_its_networks_are_built(tmp_path):
    error = understudy("run", "two-layer", "--seeds", "10000000", "--plan", cwd=tmp_path, status=2).stderr
    assert error.startswith("understudy: memory: 720,000,000 networks need ") and "train fewer or smaller" in error
    assert not list(tmp_path.iterdir())


def test_targets_of_one_teacher_on_other_seeds_are_counted_as_often_as_they_are_stored():
    teacher = teachers.regular((6, 3, 2), seeds=[1, 2, 3])
    groups = [Group(starts.gaussian(teacher, seeds=seeds), teacher, DATA) for seeds in ([1, 2, 3], [7, 8, 9])]
    training = Training(groups, SGD(0.05, batch=8), steps=1)
    training.probe()
    stored = [tensor for key, (_, tensor) in training.samples._tensors.items() if key[0] == "targets"]
    assert training.plan.memory["targets"] == sum(t.numel() * t.element_size() for t in stored) and len(stored) == 2
