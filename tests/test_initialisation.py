"""The study of starts: what it finds, what it takes to decide Z7, and a teacher of one's own."""

import numpy as np
import pyarrow as pa
import pytest
import torch

import understudy as us
from commands import Said
from understudy._errors import UserError
from understudy.nets import Layer, Population
from understudy.report.story import Kind
from understudy.store import Run
from understudy.studies import STUDIES
from understudy.studies.dynamics_claims import part
from understudy.studies.initialisation import ALGORITHMS, Initialisation
from understudy.studies.initialisation_claims import by_samples, by_students, claims, reached, slopes
from understudy.studies.perform import perform
from understudy.theory import starts
from understudy.theory.descent import descend
from understudy.theory.gaussian import loss
from understudy.theory.initialisation import begin, tempered

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
    steps=10_000,
)
FULL = {"seeds": 20, "samples": (10_000, 1_000_000), "descents": 10}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return perform(SMALL, tmp_path_factory.mktemp("initialisation"), Said())


def _as_if(**options):
    """The small study, said to have been larger: what its claims ask of the settings."""
    return Initialisation(**(SMALL.options() | FULL | options))


def _write(path, lower, upper, slope=-1.0):
    layers = (Layer(torch.tensor([lower], dtype=F), None), Layer(torch.tensor([[upper]], dtype=F), None))
    us.save(Population(layers, seeds=torch.tensor([1]), slope=slope), path, which=0)
    return str(path)


# Starts by name.


def test_starts_by_name_are_those_of_theory():
    teachers = starts.random_teachers(2, 4, [1, 2], 0.5)
    assert torch.equal(
        begin("scattered", teachers, 9, [1, 2], 1, 1.0).students, starts.scattered(teachers, 9, [1, 2])[0]
    )
    found = begin("subspace", teachers, 9, [1, 2], 5_000, 1.0).students
    assert torch.equal(found, starts.in_subspace(teachers, 9, 5_000, [1, 2])[0])


def test_normal_starts_have_the_mass_that_is_asked_for():
    """Σ ‖w‖² = mass Σ ‖w*‖, on average."""
    teachers = 3 * starts.random_teachers(2, 4, range(10), 0.5)
    for by, mass in (("small", 0.01), ("large", 20.0)):
        found = begin(by, teachers, 150, range(10), 1, mass).students
        assert found.square().sum((1, 2)).mean().item() == pytest.approx(mass * 6, rel=0.05)


def test_rates_are_smaller_by_as_much_as_there_is_too_much_mass():
    teachers = torch.eye(2, dtype=F).unsqueeze(0)
    students = torch.tensor([[[2.0, 0.0], [0.0, 2.0]], [[0.1, 0.0], [0.0, 0.1]], [[1.0, 0.0], [0.0, 1.0]]], dtype=F)
    # Σ ‖w‖² is 8, 0.02 and 2; Σ ‖w*‖ is 2.
    assert tempered(0.1, students, teachers.expand(3, 2, 2)).tolist() == pytest.approx([0.025, 0.1, 0.1])


def test_large_starts_go_down_at_the_smaller_rate_and_diverge_at_the_given_one():
    teachers = starts.random_teachers(2, 4, [1, 2], 0.5)
    large = begin("large", teachers, 6, [1, 2], 1, 30.0).students
    path = descend(large, teachers, tempered(0.1, large, teachers), 100, [0, 100])
    first, last = loss(path, teachers)
    assert (last < first / 100).all()
    assert descend(large, teachers, 0.1, 100, [100]).isnan().all()


# The study.


def test_it_is_known_by_its_name():
    assert STUDIES["initialisation"] is Initialisation


def test_every_start_has_its_row(run):
    assert run.networks["network"].to_pylist() == list(range(run.networks.num_rows))
    assert len(part(run, "start")) == 2 * 2 * 3 * 3
    assert len(part(run, "span")) == 2 * 3  # where the span is all of the space, samples have nothing to find
    assert len(part(run, "descent")) == 4 * 2
    assert SMALL.settings(SMALL.dim) == [(2, 2), (2, 4)]


def test_losses_are_those_of_the_starts(run):
    teachers = starts.random_teachers(2, 4, [1, 2, 3], 0.5)
    students, losses = by_students(run, "scattered", 2, 4)
    assert students.tolist() == [4, 8, 40]
    for m, found in zip((4, 8, 40), losses, strict=True):
        assert found == pytest.approx(loss(starts.scattered(teachers, m, [1, 2, 3])[0], teachers).numpy(), rel=1e-12)
    assert (np.diff(losses, axis=0) <= 1e-12).all()  # the first directions are among more, so that no loss is higher
    samples, angles = by_samples(run, 2, 4)
    wanted = starts.subspace_angle(starts.estimated_span(teachers, 100_000, [1, 2, 3]), teachers)
    assert samples.tolist() == [10_000, 100_000]
    assert angles[1] == pytest.approx(wanted.numpy(), rel=1e-12)
    assert set(slopes(SMALL, run)) == {(2, 4)}


def test_descent_is_timed_by_its_first_look_below_the_bound(run):
    found = reached(SMALL, run, "scattered")
    losses = run.series("loss")[part(run, "descent", by="scattered")]
    for steps, row in zip(found.steps, losses, strict=True):
        below = run.epochs[np.flatnonzero(row <= 1e-6)]
        assert steps == (below[0] if len(below) else np.inf)
    assert found.arrived == np.isfinite(found.steps).sum() > 0
    assert str(found).startswith(f"{found.arrived} of 2, after ")


def test_the_story_has_its_figures_and_numbers(run):
    story = SMALL.story(run)
    assert [figure.name for figure in story.figures] == ["start-loss", "span", "descent"]
    assert all(isinstance(figure.kind, Kind) for figure in story.figures)
    assert story.headline.startswith("With 40 students of 2 teacher nodes in 4 dimensions")


def test_a_small_run_decides_nothing(run):
    assert claims(SMALL, run) == []
    assert claims(_as_if(teacher="mine.pt"), run) == []


def _with(run, tmp_path, metric, where, by):
    """The same run with some values made wrong."""
    for path in run.folder.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    made, rows = Run(tmp_path), run.metrics
    value, name, network = (rows[c].to_numpy(zero_copy_only=False) for c in ("value", "metric", "network"))
    wrong = np.where((name == metric) & np.isin(network, where), by(value, network), value)
    made.__dict__["metrics"] = rows.set_column(rows.column_names.index("value"), "value", pa.array(wrong))
    return made


def _as_theory_says(run, tmp_path):
    """Angles of N^(−½) and descents that arrive: what three seeds need not give."""
    samples = run.column("samples")
    made = _with(run, tmp_path, "angle", part(run, "span"), lambda v, n: 1 / np.sqrt(samples[n].astype(float)))
    rows = made.metrics
    value, epoch, network = (rows[c].to_numpy(zero_copy_only=False) for c in ("value", "epoch", "network"))
    last = np.isin(network, part(run, "descent")) & (epoch == epoch.max())
    made.__dict__["metrics"] = rows.set_column(
        rows.column_names.index("value"), "value", pa.array(np.where(last, 1e-7, value))
    )
    return made


def test_the_claims_are_those_of_the_catalogue(run, tmp_path):
    found = claims(_as_if(), _as_theory_says(run, tmp_path))
    assert [(claim.id, claim.part) for claim in found] == [("Z7", "loss by m"), ("Z7", "span"), ("Z7", "descent")]
    assert all(claim.holds for claim in found)
    assert found[1].values == pytest.approx((-0.5,))
    assert [beside.where for beside in found[2].beside] == ["small starts", "large starts, whose rate is smaller"]


@pytest.mark.parametrize(
    ("metric", "name", "by", "failing"),
    [
        ("loss", "start", lambda v, n: np.ones_like(v), "loss by m"),
        ("angle", "span", lambda v, n: v**1.3, "span"),
        ("loss", "descent", lambda v, n: v + 2e-6, "descent"),
    ],
)
def test_values_outside_the_bounds_decide_against_z7(run, tmp_path, metric, name, by, failing):
    (tmp_path / "right").mkdir()
    right = _as_theory_says(run, tmp_path / "right")
    wrong = _with(right, tmp_path, metric, part(run, name), by)
    found = {claim.part: claim.holds for claim in claims(_as_if(), wrong)}
    assert found == {"loss by m": True, "span": True, "descent": True} | {failing: False}


def test_a_teacher_of_ones_own_takes_the_place_of_drawn_ones(tmp_path):
    file = _write(tmp_path / "mine.safetensors", [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]], [1.0, 0.5])
    small = {"seeds": 2, "students": (4,), "samples": (2_000,), "descents": 1, "descent_students": 4, "steps": 20}
    study = Initialisation(teacher=file, **small)
    assert study.settings(study.dim) == [(2, 3)]
    assert torch.equal(study.teachers(2, 3, [1, 2])[1], torch.eye(3, dtype=F)[:2])
    assert len(study.config()["contents"]["teacher"]) == 64  # what is in the file, not its name, is the study
    made = perform(study, tmp_path, Said())
    assert set(made.networks["dim"].to_pylist()) == {3}
    assert made.claims == []
    assert [figure.name for figure in study.story(made).figures] == ["start-loss", "descent"]


def test_a_teacher_with_more_nodes_than_students_is_refused_before_anything_is_written(tmp_path):
    file = _write(tmp_path / "mine.safetensors", torch.eye(12).tolist(), [1.0] * 12)
    with pytest.raises(UserError, match="--students: 10 was given; allowed is a whole number from 12, the nodes"):
        perform(Initialisation(teacher=file), tmp_path / "runs", Said())
    assert not (tmp_path / "runs").exists()


def test_a_rate_above_the_bound_is_said_and_goes_on(run):
    assert SMALL.cautions() == ()
    fast = Initialisation(**(SMALL.options() | {"rate": 0.5}))
    (caution,) = fast.cautions()
    assert fast.story(run).figures[-1].caption.endswith(f" Mind {caution}.")
    assert caution.startswith("--rate: 0.5 is above 0.1")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"students": (4,)}, "--students: 4 was given; allowed is a whole number from 5, the nodes of the teacher"),
        ({"descent_students": 4}, "--descent-students: 4 was given; allowed is a whole number from 5"),
        ({"dim": (2,)}, "--dim: 2 was given; allowed is a whole number from 3, the least number of teacher nodes"),
        ({"descent_dim": (2,)}, "--descent-dim: 2 was given"),
        ({"separation": 2.0}, "--separation: 2 was given; allowed is a number above 0 and up to π/2"),
        ({"samples": (0,)}, "--samples: 0 was given"),
        ({"small": 0.0}, "--small: 0.0 was given"),
        ({"dtype": "float32"}, "--dtype: float32 was given; theory is computed in float64 alone"),
    ],
)
def test_options_that_cannot_be_are_refused(options, words):
    with pytest.raises(UserError) as error:
        Initialisation(**options)
    assert str(error.value).startswith(words)


def test_both_algorithms_are_compared():
    assert ALGORITHMS == ("scattered", "subspace")
