"""The study initialisation: results, claims, and a teacher from a file."""

import numpy as np
import pytest
import torch

import understudy as us
from support.changed_runs import with_units, with_values
from support.commands import Said
from understudy._errors import UserError
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.lab.pieces import log_probes
from understudy.nets import Layer, Population
from understudy.papers.local.initialisation.claims import (
    claims,
    descents,
    initial_losses,
    loss_exponents,
    moment_constants,
    sample_slopes,
    span_units,
)
from understudy.papers.local.initialisation.study import ALGORITHMS, Initialisation
from understudy.papers.local.shared import measure
from understudy.papers.local.theory import starts
from understudy.papers.local.theory.gaussian import loss
from understudy.papers.local.theory.teachers import random_teachers
from understudy.report.story import Kind

F = torch.float64
SMALL = Initialisation(
    seeds=3,
    teacher_nodes=(2,),
    dim=(2, 4),
    students=(4, 8, 40),
    samples=(10_000, 100_000),
    span_samples=20_000,
    descents=2,
    descent_dim=(4,),
    descent_students=4,
)
PARTS = ("loss by m", "exponent", "span", "moment", "descent")
PROBES = log_probes(SMALL.steps, 120)
FULL = {"seeds": 20, "samples": (10_000, 1_000_000), "span_samples": 300_000, "descents": 10, "descent_students": 30}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SMALL, tmp_path_factory.mktemp("initialisation"), Said())


def part(run, name, **where):
    """Numbers of the networks of one part of the run."""
    return run.select(part=name, **where).index


def _as_if(**options):
    """The small study with the settings that its claims require."""
    return Initialisation(**(SMALL.options() | FULL | options))


def _write(path, lower, upper, slope=-1.0):
    layers = (Layer(torch.tensor([lower], dtype=F), None), Layer(torch.tensor([[upper]], dtype=F), None))
    us.save(Population(layers, seeds=torch.tensor([1]), slope=slope), path, which=0)
    return str(path)


# The study.


def test_the_study_is_registered():
    assert studies()["initialisation"] is Initialisation


def test_every_initialisation_has_one_row(run):
    assert run.networks["network"].to_pylist() == list(range(run.networks.num_rows))
    assert len(part(run, "start")) == 2 * 2 * 3 * 3
    assert run.table("spans").num_rows == 2 * 3  # where the span is the whole space, none is estimated
    assert len(part(run, "descent")) == 4 * 2
    assert SMALL.settings(SMALL.dim) == [(2, 2), (2, 4)]


def test_losses_agree_with_direct_computation(run):
    teachers = random_teachers(2, 4, [1, 2, 3], 0.5)
    losses = initial_losses(run, 2, 4).sel(by="scattered")
    assert losses["students"].values.tolist() == [4, 8, 40]
    for m, found in zip((4, 8, 40), losses.values, strict=True):
        assert found == pytest.approx(loss(starts.scatter(teachers, m, [1, 2, 3])[0], teachers).numpy(), rel=1e-12)
    again, counts = starts.scatter(teachers, 40, [1, 2, 3]), part(run, "start", by="scattered", students=40, dim=4)
    assert run.series("idle")[counts, 0].tolist() == (again.students == 0).all(-1).sum(-1).tolist()
    assert run.series("singular")[counts, 0].tolist() == list(again.singular)
    angles = span_units(SMALL, run)[2, 4]
    wanted = starts.subspace_angle(starts.estimate_span(teachers, 100_000, [1, 2, 3]), teachers)
    assert angles.index.tolist() == [10_000, 100_000]
    assert angles.loc[100_000].to_numpy() == pytest.approx(wanted.numpy(), rel=1e-12)
    assert set(sample_slopes(SMALL, run)) == {(2, 4)}
    apart = starts.estimate_moment(teachers, 100_000, [1, 2, 3]) - starts.teacher_moment(teachers)
    distance = torch.linalg.matrix_norm(apart, 2).numpy()
    assert span_units(SMALL, run, "distance")[2, 4].loc[100_000].to_numpy() == pytest.approx(distance, rel=1e-12)
    assert moment_constants(run)[-3:] == pytest.approx(distance / (2 * np.sqrt(4 / 100_000)), rel=1e-9)
    wanted = np.polyfit(np.log([4, 8, 40]), np.log(losses.values), 1)[0]
    assert loss_exponents(run, "scattered", 2, 4) == pytest.approx(wanted)


def test_quantities_of_the_proofs_are_recorded_along_descents(run):
    which = part(run, "descent", by="large")
    path_rates = starts.stable_rate(SMALL.rate, *_large())
    assert (path_rates < SMALL.rate).all()
    wanted = measure(_large()[0][None], _large()[1], path_rates).values
    assert {"gradient_norm", "descent", "least_mass", "lemma 9 left", "lemma C.4 right"} <= set(wanted)
    for name, value in wanted.items():
        assert run.series(name)[which, 0] == pytest.approx(value[0], rel=1e-9, nan_ok=True), name
    nodes = run.nodes
    mine = [
        role for role, net in zip(nodes["role"].to_pylist(), nodes["network"].to_pylist(), strict=True) if net in which
    ]
    assert mine.count("student") == 2 * 4 * len(PROBES)
    assert mine.count("teacher") == 2 * 2 * len(PROBES)


def _large():
    teachers = random_teachers(2, 4, [1, 2], 0.5)
    return starts.initialise("large", teachers, 4, [1, 2], 1, SMALL.large).students, teachers


def test_directions_depend_on_the_number_of_students_and_teachers_do_not(run):
    """The loss can therefore rise with the number of students, and does in some seeds."""
    assert torch.equal(SMALL.teachers(2, 4, [1]), SMALL.teachers(2, 4, [1, 2])[:1])
    teachers = SMALL.teachers(2, 4, range(1, 21))
    for by in ALGORITHMS:
        made = (starts.initialise(by, teachers, m, range(1, 21), 5_000, 1.0) for m in (10, 12))
        few, more = (loss(initial.students, teachers) for initial in made)
        assert 0 < int((more > few).sum()) < 20


def test_descent_is_timed_by_its_first_probe_below_the_bound(run):
    found = descents(run, "scattered")
    losses = run.series("loss")[part(run, "descent", by="scattered")]
    for steps, row in zip(found.steps, losses, strict=True):
        below = run.epochs[np.flatnonzero(row <= 1e-6)]
        assert steps == (below[0] if len(below) else np.inf)
    assert found.arrived == np.isfinite(found.steps).sum() > 0
    assert found.verdict().measured.startswith(f"{found.arrived} of 2, after ")


def test_the_story_has_all_figures_and_a_headline(run):
    story = SMALL.story(run)
    assert [figure.name for figure in story.figures] == ["start-loss", "span", "descent"]
    assert all(isinstance(figure.kind, Kind) for figure in story.figures)
    assert story.headline.startswith("With 40 students of 2 teacher nodes in 4 dimensions")


def test_the_story_reports_notes_on_the_initialisation(run):
    first, _, last = (figure.caption for figure in SMALL.story(run).figures)
    which = part(run, "start")
    share = run.series("idle")[which, 0] / run.column("students")[which].astype(float)
    assert f" Least squares gives {np.median(share):.0%} of the students length 0 (median; at most " in first
    assert " 2 neurons in 2 dimensions: the subspace is the whole space." in first
    assert "whole space" not in last  # descents are in 4 dimensions


def test_singular_matrices_are_counted_in_the_story(run, tmp_path):
    assert "singular" not in SMALL.story(run).figures[0].caption
    wrong = with_values(run, tmp_path, "singular", part(run, "start")[:3], lambda v: np.full_like(v, 2.0))
    caption = SMALL.story(wrong).figures[0].caption
    assert "is singular in 3 of 36 networks, by up to 2 dimensions, which least squares leaves out." in caption


def test_a_small_run_decides_nothing(run):
    assert claims(SMALL, run) == []
    assert claims(_as_if(teacher="mine.pt"), run) == []


def _as_theory_says(run, tmp_path):
    """Copy of a run with angles N^(−½), steep losses and descents that converge, which three seeds do not guarantee."""
    students = run.column("students")[run.metrics["network"].to_numpy()].astype(float)
    run = with_values(run, tmp_path, "loss", part(run, "start"), lambda _: students**-1.5)
    last = run.metrics["epoch"].to_numpy() == SMALL.steps
    made = with_values(run, tmp_path, "loss", part(run, "descent"), lambda loss: np.where(last, 1e-7, loss))
    samples = run.table("spans")["samples"].to_numpy().astype(float)
    for column in ("angle", "distance"):
        made = with_units(made, tmp_path, "spans", column, lambda _: 1 / np.sqrt(samples))
    return made


def test_the_claims_are_the_listed_ones(run, tmp_path):
    found = claims(_as_if(), _as_theory_says(run, tmp_path))
    assert [(claim.id, claim.part) for claim in found] == [("Z7", part) for part in PARTS]
    assert all(claim.holds for claim in found)
    assert found[2].values == pytest.approx((-0.5,))
    assert [variant.where for variant in found[-1].variants] == [
        "small initial weights",
        "large initial weights, with a smaller learning rate",
    ]


@pytest.mark.parametrize(
    ("name", "by", "failing"),
    [
        ("start", lambda v: np.ones_like(v), {"loss by m", "exponent"}),
        ("start", lambda v: np.abs(v) ** 0.2, {"exponent"}),
        ("angle", lambda v: np.abs(v) ** 1.3, {"span"}),
        ("distance", lambda v: np.abs(v) ** 1.3, {"moment"}),
        ("distance", lambda v: 100 * v, {"moment"}),
        ("descent", lambda v: v + 2e-6, {"descent"}),
    ],
)
def test_values_outside_the_bounds_refute_z7(run, tmp_path, name, by, failing):
    (tmp_path / "right").mkdir()
    right = _as_theory_says(run, tmp_path / "right")
    if name in ("angle", "distance"):
        wrong = with_units(right, tmp_path, "spans", name, by)
    else:
        wrong = with_values(right, tmp_path, "loss", part(run, name), by)
    found = {claim.part: claim.holds for claim in claims(_as_if(), wrong)}
    assert found == {part: part not in failing for part in PARTS}


@pytest.mark.parametrize(
    ("options", "undecided"),
    [
        ({"seeds": 19}, {"loss by m", "exponent", "span", "moment"}),
        ({"students": (4, 8)}, {"loss by m", "exponent"}),
        ({"students": (4, 7, 40)}, {"loss by m", "exponent"}),
        ({"span_samples": 299_999}, {"loss by m", "exponent", "descent"}),
        ({"samples": (10_000, 900_000)}, {"span", "moment"}),
        ({"descents": 9}, {"descent"}),
        ({"steps": 39_999}, {"descent"}),
        ({"rate": 0.06}, {"descent"}),
        ({"rate": 0.04}, {"descent"}),
        ({"descent_students": 29}, {"descent"}),
    ],
)
def test_other_settings_leave_claims_undecided(run, options, undecided):
    parts = {claim.part for claim in claims(_as_if(**options), run)}
    assert parts == set(PARTS) - undecided


def test_a_span_that_was_not_measured_is_not_decided(run):
    """With as many nodes as inputs the span is the whole space."""
    assert {claim.part for claim in claims(_as_if(dim=(2,)), run)} == {"loss by m", "exponent", "descent"}


def test_a_teacher_from_a_file_replaces_random_ones(tmp_path):
    file = _write(tmp_path / "mine.safetensors", [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]], [1.0, 0.5])
    small = {"seeds": 2, "students": (4,), "samples": (2_000,), "descents": 1, "descent_students": 4, "steps": 20}
    study = Initialisation(teacher=file, **small)
    assert study.settings(study.dim) == [(2, 3)]
    assert torch.equal(study.teachers(2, 3, [1, 2])[1], torch.eye(3, dtype=F)[:2])
    assert (
        len(study.config()["contents"]["teacher"]) == 64
    )  # the contents of the file, not its name, identify the study
    made = execute(study, tmp_path, Said())
    assert set(made.networks["dim"].to_pylist()) == {3}
    assert made.claims == []
    assert [figure.name for figure in study.story(made).figures] == ["start-loss", "descent"]


def test_a_teacher_with_more_nodes_than_students_is_rejected_before_anything_is_written(tmp_path):
    file = _write(tmp_path / "mine.safetensors", torch.eye(12).tolist(), [1.0] * 12)
    with pytest.raises(UserError, match=r"--students must be at least the number of teacher nodes \(12\), got 10"):
        execute(Initialisation(teacher=file), tmp_path / "runs", Said())
    assert not (tmp_path / "runs").exists()


def test_a_rate_above_the_bound_causes_a_warning(run):
    assert SMALL.warnings() == ()
    fast = Initialisation(**(SMALL.options() | {"rate": 0.5}))
    (warning,) = fast.warnings()
    assert fast.story(run).figures[-1].caption.endswith(f" Warning: {warning}.")
    assert warning.startswith("--rate 0.5 is above 0.1")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"students": (4,)}, "--students must be at least the number of teacher nodes (5), got 4"),
        ({"descent_students": 4}, "--descent-students must be at least the number of teacher nodes (5), got 4"),
        ({"dim": (2,)}, "--dim must be at least the smallest number of teacher nodes (3), got 2"),
        ({"descent_dim": (2,)}, "--descent-dim must be at least the smallest number of teacher nodes (3), got 2"),
        ({"separation": 2.0}, "--separation must be above 0 and at most π/2, got 2"),
        ({"separation": 1.5709}, "--separation must be above 0 and at most π/2, got 1.5709"),
        ({"samples": (0,)}, "--samples must be at least 1, got 0"),
        ({"small": 0.0}, "--small must be above 0, got 0"),
        ({"dtype": "float32"}, "--dtype must be float64, got float32"),
    ],
)
def test_invalid_options_are_rejected(options, words):
    with pytest.raises(UserError) as error:
        Initialisation(**options)
    assert str(error.value).startswith(words)


def test_teachers_may_be_nearly_orthogonal():
    study = Initialisation(separation=1.5705)
    (teacher,) = study.teachers(3, 5, [1])
    assert (teacher @ teacher.T).fill_diagonal_(0).abs().max() <= np.cos(1.5705) * (1 + 1e-6)


def test_both_algorithms_are_compared():
    assert ALGORITHMS == ("scattered", "subspace")
