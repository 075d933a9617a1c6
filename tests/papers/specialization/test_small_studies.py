"""The studies of focus shifting, moving hyperplanes and teacher-aware data: what they train, and what they conclude."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
import torch

from understudy import teachers
from understudy.errors import UserError
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.papers.specialization.focus_shift.claims import shifted
from understudy.papers.specialization.focus_shift.study import FocusShifting
from understudy.papers.specialization.hyperplanes.claims import settled
from understudy.papers.specialization.hyperplanes.study import MovingHyperplanes
from understudy.papers.specialization.teacher_aware.study import TeacherAwareData
from understudy.report.figures import Dots

SMALL = (FocusShifting, MovingHyperplanes, TeacherAwareData)


class FakeRun:
    """A run's tables made by hand: what a study's claims ask of one."""

    def __init__(self, parameters, *, epochs=1, metrics=None, nodes=None, pairs=None, strength=None, diverged=()):
        networks = range(len(parameters))
        self.networks = pa.table(
            {"network": list(networks)}
            | {name: [row[name] for row in parameters] for name in parameters[0]}
            | {"diverged_at": pa.array([5 if n in diverged else None for n in networks], pa.int64())}
        )
        self.epochs = np.arange(epochs + 1)
        self._metrics, self._nodes, self._pairs, self._strength = metrics or {}, nodes or {}, pairs, strength

    def column(self, name):
        return self.networks[name].to_numpy()

    def series(self, metric, layer=-1):
        return np.asarray(self._metrics[metric], dtype=float)

    def matched(self, role, column, layer=0, epoch=None):
        return np.asarray(self._nodes[column], dtype=float)

    def pairs(self, network, layer=0):
        return self._pairs[network]

    def weights(self, who):
        sizes = (2, len(self._strength[0]), 3)
        teacher = teachers.separated(sizes, seeds=range(len(self._strength)), dtype=torch.float64)
        top = torch.zeros_like(teacher.layers[1].weight)
        top[:, 0] = torch.tensor(self._strength, dtype=torch.float64)
        layers = (teacher.layers[0], teacher.layers[1]._replace(weight=top))
        return [dataclasses.replace(teacher, layers=layers)]


# Focus shifting


def curves(*looks):
    """[look, teacher, student] of one student's correlations with each teacher node."""
    return np.array(looks, dtype=float)[:, :, None]


STRENGTH = np.array([2.0, 1.0, 0.5])


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(0, 0, 0), (0.9, 0.1, 0), (0.1, 0, 0.99)], True),  # followed the strongest, ends on the weakest
        ([(0, 0, 0), (0.1, 0.8, 0), (0.99, 0, 0.1)], False),  # the other way: from weaker to stronger
        ([(0, 0, 0), (0.9, 0.1, 0), (0.99, 0, 0)], False),  # never left
        ([(0, 0, 0), (0.9, 0.1, 0), (0.1, 0, 0.94)], False),  # does not end matched
        ([(0, 0, 0), (0.45, 0.1, 0), (0.1, 0, 0.99)], False),  # never followed anyone else
        ([(0.9, 0, 0), (0.1, 0.1, 0.8), (0.1, 0, 0.99)], False),  # before training does not count
        ([(0, 0, 0), (0.9, 0.1, 0), (np.nan, np.nan, np.nan)], False),  # a dead student
    ],
)
def test_who_shifted(looks, expected):
    assert shifted(curves(*looks), STRENGTH).tolist() == [expected]


def test_strength_decides_not_the_index():
    looks = curves((0, 0, 0), (0, 0, 0.9), (0.99, 0, 0))
    assert not shifted(looks, STRENGTH).any()
    assert shifted(looks, STRENGTH[::-1].copy()).all()


def _focus_run(moves):
    """A run of two seeds at 2×; `moves` says whether the student of each shifts."""
    parameters = [{"teacher_nodes": 5, "polarity": 1.0, "multiple": 2.0, "seed": s + 1} for s in range(len(moves))]
    end = {True: (0.1, 0, 0.99), False: (0.99, 0, 0.1)}
    pairs = [curves((0, 0, 0), (0.9, 0.1, 0), end[move]) for move in moves]
    return FakeRun(parameters, pairs=pairs, strength=[STRENGTH.tolist()] * len(moves))


def test_t7_asks_for_a_student_in_every_network():
    (claim,) = FocusShifting(seeds=2).claims(_focus_run([True, True]))
    assert (claim.id, claim.part, claim.holds, claim.n, claim.values) == ("T7", "2×", True, 2, (1.0, 1.0))
    (claim,) = FocusShifting(seeds=2).claims(_focus_run([True, False]))
    assert not claim.holds
    assert "at least one in 1 of 2" in claim.measured


@pytest.mark.parametrize("other", [{"epochs": 100}, {"lr": 0.02}, {"teacher_nodes": 6}, {"steps": 2_000}])
def test_t7_is_decided_at_the_papers_settings_alone(other):
    assert FocusShifting(seeds=2, **other).claims(_focus_run([True, True])) == []


# Hyperplanes


def _plane_run(fanout, correlation=None, gap=None, teacher=None, scales=(1e-6,), **more):
    count = len(fanout)
    parameters = [{"scale": scale, "seed": s + 1} for scale in scales for s in range(count // len(scales))]
    nodes = {
        "fanout": fanout,
        "correlation": correlation or [[1.0, 1.0, 1.0, 0.3, -0.2, 0.0]] * count,
        "sin_angle": [[0.001] * 6] * count,
        "bias_gap": gap or [[0.001] * 6] * count,
        "teacher": teacher or [[0, 1, 0, 1, 0, 0]] * count,
    }
    return FakeRun(parameters, nodes=nodes, **more)


def test_t8_holds_when_both_are_covered_and_the_others_are_quiet():
    covered, others = MovingHyperplanes(scale=(1e-6,)).claims(_plane_run([[2.27, 2.19, 1.83, 0.01, 0.04, 0.0]] * 3))
    assert covered.holds
    assert covered.values == (2.0, 2.0, 2.0)
    assert others.holds
    assert others.values == pytest.approx([0.04 / 2.27] * 3)
    assert (others.id, others.high, others.n) == ("T8", 0.02, 3)


def test_t8_asks_every_seed():
    quiet, loud = [2.0, 2.0, 2.0, 0.0, 0.0, 0.0], [2.0, 2.0, 2.0, 0.041, 0.0, 0.0]
    covered, others = MovingHyperplanes(scale=(1e-6,)).claims(_plane_run([quiet, loud]))
    assert covered.holds
    assert not others.holds
    assert others.measured.startswith("under 2% in 1 of 2 seeds")


@pytest.mark.parametrize(
    "astray",
    [
        {"correlation": [[1.0, 0.98, 1.0, 0.3, -0.2, 0.0]]},
        {"gap": [[0.001, 0.06, 0.001, 0.001, 0.001, 0.001]]},
        {"teacher": [[0, 0, 0, 1, 0, 0]]},
    ],
)
def test_t8_sees_a_boundary_that_is_not_covered(astray):
    covered, _ = MovingHyperplanes(scale=(1e-6,)).claims(_plane_run([[2.0, 2.0, 2.0, 0, 0, 0]], **astray))
    assert not covered.holds
    assert covered.values == (1.0,)


def test_t8_is_decided_on_the_smallest_start_and_tells_of_the_others():
    loud, quiet = [2.0, 2.0, 2.0, 1.0, 0.0, 0.0], [2.0, 2.0, 2.0, 0.0, 0.0, 0.0]
    study = MovingHyperplanes(scale=(5e-3, 1e-6))
    covered, others = study.claims(_plane_run([loud, quiet], scales=study.scale))
    assert others.holds
    assert "(0 of 1 started at 0.005)" in others.measured
    assert "(1 of 1 started at 0.005)" in covered.measured


def test_t8_leaves_out_what_diverged_or_was_too_short():
    quiet = [2.0, 2.0, 2.0, 0.0, 0.0, 0.0]
    run = _plane_run([quiet, [np.nan] * 6], diverged={1})
    assert settled(run, 1e-6).networks.tolist() == [0]
    assert [c.n for c in MovingHyperplanes(scale=(1e-6,)).claims(run)] == [1, 1]
    assert MovingHyperplanes(scale=(1e-6,), epochs=100).claims(run) == []
    assert MovingHyperplanes(scale=(1e-6,)).claims(_plane_run([quiet], diverged={0})) == []


# Teacher-aware data


def _aware_run(study, evaluation, training=1e-5):
    """`evaluation(kind, samples)` for every seed; the untrained loss is 1."""
    parameters = [
        {"data": kind, "samples": n, "polarity": p, "seed": s}
        for kind in study.data
        for n in study.samples
        for s in range(1, study.seeds + 1)
        for p in study.polarity
    ]
    final = [evaluation(row["data"], row["samples"]) for row in parameters]
    metrics = {"eval_loss": [(1.0, v) for v in final], "train_loss": [(1.0, training)] * len(final)}
    return FakeRun(parameters, metrics=metrics)


AWARE = TeacherAwareData(seeds=3, samples=(150, 1_000, 3_000), polarity=(1.0,))


def _as_in_the_paper(kind, samples):
    if kind == "aware":
        return {150: 0.006, 1_000: 2e-4, 3_000: 1e-4}[samples]
    return {150: 0.049, 1_000: 3e-4, 3_000: 1e-4}[samples] * (1.5 if kind == "aware-near" else 1)


def test_t9_holds_part_by_part():
    claims = AWARE.claims(_aware_run(AWARE, _as_in_the_paper))
    parts = ["training loss", "evaluation loss", "gap closes", "moved 1 to 2"]
    assert [c.part for c in claims] == [f"{part}, p = 1" for part in parts]
    assert all(c.holds and c.id == "T9" for c in claims)
    assert claims[1].values == pytest.approx([np.log10(0.049 / 0.006)] * 3)
    assert claims[1].low == pytest.approx(np.log10(4))
    assert claims[1].measured == "8.2× (medians 0.006 against 0.049)"


@pytest.mark.parametrize(
    ("part", "training", "evaluation"),
    [
        (0, 0.02, _as_in_the_paper),
        (
            1,
            1e-5,
            lambda k, n: (
                {"aware": 0.013, "agnostic": 0.05}.get(k, 0.06) if n == 150 else 1e-4 if k != "aware-near" else 2e-4
            ),
        ),
        (2, 1e-5, lambda k, n: _as_in_the_paper(k, n) + (0.01 if n == 1_000 and k != "aware" else 0)),
        (3, 1e-5, lambda k, n: 0.04 if (k, n) == ("aware-near", 150) else _as_in_the_paper(k, n)),
    ],
)
def test_t9_fails_part_by_part(part, training, evaluation):
    claims = AWARE.claims(_aware_run(AWARE, evaluation, training))
    assert [c.holds for c in claims] == [i != part for i in range(4)]


def test_t9_says_only_what_the_run_can():
    def decided(**changed):
        study = dataclasses.replace(AWARE, **changed)
        return [c.part.split(",")[0] for c in study.claims(_aware_run(study, _as_in_the_paper))]

    assert decided(epochs=10) == []
    assert decided(polarity=(2.0,)) == []
    assert decided(data=("agnostic",)) == []
    assert decided(data=("aware", "agnostic"), samples=(150,)) == ["training loss", "evaluation loss"]
    assert decided(moved=(3.0, 4.0)) == ["moved 1 to 2"]
    assert decided(moved_near=(3.0, 4.0)) == ["training loss", "evaluation loss", "gap closes"]


def test_a_point_a_network_that_came_through():
    run = _aware_run(AWARE, _as_in_the_paper)
    diverged = pa.array([5] + [None] * (run.networks.num_rows - 1), pa.int64())
    run.networks = run.networks.drop_columns(["diverged_at"]).append_column("diverged_at", diverged)
    (figure,) = AWARE.story(run).figures
    points = [trace for trace in figure.kind.page()["data"] if trace["mode"] == "markers"]
    assert [network for trace in points for network, *_ in trace["customdata"]] == list(range(1, 27))
    assert points[1]["y"] == [0.049] * 3 + [3e-4] * 3 + [1e-4] * 3


def test_one_seed_is_one_seed():
    alone = dataclasses.replace(AWARE, seeds=1)
    assert alone.story(_aware_run(alone, _as_in_the_paper)).headline.endswith("; median of 1 seed.")
    assert AWARE.story(_aware_run(AWARE, _as_in_the_paper)).headline.endswith("; median of 3 seeds.")


# All three


def test_registered_under_their_names():
    assert {study.name for study in SMALL} <= set(studies())


@pytest.mark.parametrize(
    ("study", "options", "words"),
    [
        (FocusShifting, {"teacher_nodes": 1}, "--teacher-nodes: 1 was given; allowed is a whole number from 2"),
        (FocusShifting, {"multiple": (2.5, 2.5)}, "--multiple: 2.5 2.5 was given; name each value once"),
        (FocusShifting, {"multiple": (1.5,)}, "--multiple: 1.5 was given;"),
        (FocusShifting, {"steps": 0}, "--steps: 0 was given; allowed is a whole number from 1"),
        (FocusShifting, {"train": 8}, "--batch: 16 was given; allowed is up to the number of training samples, 8"),
        (
            MovingHyperplanes,
            {"angle": 180.0},
            "--angle: 180 was given; allowed is a number of degrees above 0 and below 180",
        ),
        (MovingHyperplanes, {"scale": ()}, "--scale: no value was given; give one or more numbers"),
        (MovingHyperplanes, {"scale": (0.0,)}, "--scale: 0.0 was given; allowed is a number above 0"),
        (MovingHyperplanes, {"students": 1}, "--students: 1 was given; allowed is a whole number from 2"),
        (MovingHyperplanes, {"bias": float("nan")}, "--bias: nan was given; allowed is a number that is finite"),
        (
            TeacherAwareData,
            {"samples": (8, 100)},
            "--samples: 8 was given; allowed is a whole number from the samples of a batch, 16",
        ),
        (TeacherAwareData, {"samples": (50, 50)}, "--samples: 50 50 was given; name each value once"),
        (TeacherAwareData, {"data": ("blind",)}, "--data: blind was given; allowed are aware, agnostic, aware-near"),
        (TeacherAwareData, {"data": ("aware", "aware")}, "--data: aware aware was given; name each value once"),
        (
            TeacherAwareData,
            {"moved_near": (2.0, 1.0)},
            "--moved-near: 2 1 was given; allowed are two distances, the smaller first",
        ),
        (TeacherAwareData, {"moved": (-1.0, 1.0)}, "--moved: -1.0 was given; allowed is a number from 0"),
    ],
)
def test_options_that_cannot_be(study, options, words):
    with pytest.raises(UserError) as error:
        study(**options)
    assert str(error.value).startswith(words)


def test_what_is_trained():
    focus = FocusShifting(seeds=2).experiment()
    assert [g.students.sizes for g in focus.groups] == [(100, 10, 50), (100, 25, 50)]
    assert focus.pairs
    assert (focus.epochs, focus.steps, len(focus.parameters)) == (200, 200, 4)
    planes = MovingHyperplanes(seeds=2).experiment()
    assert [g.students.sizes for g in planes.groups] == [(2, 6, 50)] * 3
    assert {0, 1, 600} <= planes.keep
    assert 40 <= len(planes.keep) <= 61
    assert planes.parameters[2] == {"scale": 1e-4, "seed": 1}
    aware = TeacherAwareData(seeds=2).experiment()
    assert [g.data.train for g in aware.groups] == [50, 100, 150, 300, 1_000, 3_000, 10_000] * 3
    assert len(aware.parameters) == sum(len(g.students) for g in aware.groups) == 84
    assert aware.parameters[5] == {"data": "aware", "samples": 100, "polarity": 1.0, "seed": 1}
    assert [g.data.moved for g in aware.groups if hasattr(g.data, "moved")] == [(10.0, 11.0)] * 7 + [(1.0, 2.0)] * 7


@pytest.mark.parametrize("study", SMALL)
def test_quick_and_config(study):
    quick = study.quick()
    assert study.from_config(json.loads(json.dumps(quick.config()))) == quick
    assert study().command() == f"understudy run {study.name}"


class Silent:
    def start(self, folder, epoch, epochs): ...

    def epoch(self, progress): ...

    def say(self, what): ...


TINY = (
    FocusShifting(seeds=1, epochs=4, steps=50, dim=10, outputs=5, train=100, evaluation=100),
    MovingHyperplanes(seeds=2, epochs=4, steps=25, outputs=5, train=100, evaluation=100, scale=(0.1, 0.01)),
    TeacherAwareData(seeds=2, samples=(20, 40), epochs=2, steps=20, dim=10, outputs=5, evaluation=100),
)


@pytest.mark.parametrize("study", TINY, ids=lambda study: study.name)
def test_from_training_to_report(study, tmp_path):
    run = execute(study, tmp_path, Silent())
    story = study.story(run)
    assert story.headline.endswith(".")
    assert "nan" not in story.headline + "".join(n.value for n in story.numbers)
    assert 2 <= len(story.numbers) <= 4
    assert run.claims == []
    for figure in story.figures:
        assert (run.folder / "figures" / f"{figure.name}.pdf").stat().st_size > 1_000
    assert (run.folder / "report.html").stat().st_size > 10_000
    assert (run.folder / "figures" / "hyperplanes.gif").exists() == isinstance(study, MovingHyperplanes)


@pytest.mark.parametrize("study", SMALL)
def test_a_run_in_which_everything_diverged_is_told(study, tmp_path):
    tiny = next(s for s in TINY if isinstance(s, study))
    run = execute(dataclasses.replace(tiny, lr=1e6), tmp_path, Silent())
    assert all(at is not None for at in run.column("diverged_at"))
    assert tiny.story(run).headline


# The kind of figure that two of them share


def _dots(**changed):
    values = np.array([[4.0, 5.0, 5.0, 9.0], [1.0, 0.0, np.nan, 2.0]])
    network = np.array([[0, 1, 2, 3], [4, 5, -1, 7]])
    return Dots(**({"labels": ("2×", "5×"), "values": values, "network": network, "name": "students"} | changed))


@pytest.mark.parametrize("changed", [{}, {"bound": 1.0}, {"floor": 1e-3, "percent": True, "bound": 0.02}])
def test_dots_on_paper_and_on_the_page(changed):
    kind = _dots(**changed)
    words = [text.get_text() for text in kind.paper().findobj(lambda artist: hasattr(artist, "get_text"))]
    assert "n = 4 seeds" in words
    page = kind.page()
    json.dumps(page, allow_nan=False)
    points = [trace for trace in page["data"] if trace["mode"] == "markers"]
    assert [len(trace["x"]) for trace in points] == [4, 3]
    assert points[1]["customdata"] == [[4, -1, -1], [5, -1, -1], [7, -1, -1]]
    assert len(set(points[0]["x"])) == 3  # equal values lie side by side


def test_dots_name_the_array_that_does_not_fit():
    with pytest.raises(ValueError, match=r"Dots\.network has shape"):
        _dots(network=np.zeros((2, 3), int))
