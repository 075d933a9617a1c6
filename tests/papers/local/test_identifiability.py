"""The study identifiability: closed forms against independent computations, and ReLU students that do not match."""

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.changed_runs import with_units, with_values
from support.commands import Said
from support.gaussian_digits import tensor
from support.runs import made_run
from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.papers.local.identifiability import study as studied
from understudy.papers.local.identifiability import trials
from understudy.papers.local.identifiability.claims import (
    claims,
    decay,
    eigenvalue_slope,
    eigenvalues,
    sampled_errors,
    smallest_accurate,
    units,
)
from understudy.papers.local.identifiability.study import Identifiability
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory import identifiability as theory
from understudy.papers.local.theory.descent import descend
from understudy.papers.local.theory.geometry import least_angle
from understudy.papers.local.theory.teachers import random_teachers
from understudy.report.story import Kind

F = torch.float64
seeds = st.integers(1, 10**6)


# Independent computations.


def test_sixty_digits_by_hand():
    """One student of length 2 and one node: ½(4 − 1)² with slope 2·2·3 if parallel, ½(17 − 16/π) at a right angle."""
    node = tensor([1.0, 0.0])
    loss, gradient = trials.exact_gradient(tensor([2.0, 0.0]), node)
    assert loss == pytest.approx(4.5, rel=1e-15)
    torch.testing.assert_close(gradient, tensor([12.0, 0.0]))
    assert trials.exact_gradient(tensor([-2.0, 0.0]), node)[1][0, 0] == -12
    assert trials.exact_gradient(tensor([0.0, 2.0]), node)[0] == pytest.approx((17 - 16 / math.pi) / 2, rel=1e-15)
    assert trials.exact_gradient(tensor([0.0, 0.0]), node) == (0.5, pytest.approx(torch.zeros(1, 2, dtype=F)))


@pytest.mark.parametrize("delta", [1e-1, 1e-3, 1e-6, 1e-9])
def test_sixty_digits_agree_with_mpmath_on_the_two_students_of_claim_2(delta):
    """In 100 digits of mpmath, and by hand: R = (t|x₂| − |x₁|)₊, t = tan δ, so that L goes as 2/(3π) t³."""
    with mp.workdps(100):
        exact = _two_students(mp.mpf(math.tan(delta)))
        students = tensor([1.0, math.tan(delta)], [1.0, -math.tan(delta)])
        students = students / (2 * students.norm(dim=1, keepdim=True)).sqrt()
        # Rounded weights are not exactly the students of claim 2: both computations get the same ones.
        found, _ = trials.exact_gradient(students, tensor([1.0, 0.0]))
        rounded = _loss([[mp.mpf(x) for x in row] for row in students.tolist()])
    assert found == pytest.approx(float(rounded), rel=1e-15)
    if delta > 1e-4:
        assert found == pytest.approx(float(exact), rel=1e-6)
        assert found == pytest.approx(2 / (3 * math.pi) * delta**3, rel=2 * delta**2 + 1e-6)


def _two_students(t):
    size = mp.sqrt(1 + t * t)
    return _loss([[1 / mp.sqrt(2 * size), t / mp.sqrt(2 * size)], [1 / mp.sqrt(2 * size), -t / mp.sqrt(2 * size)]])


def _loss(students):
    nodes = [*students, [mp.mpf(1), mp.mpf(0)]]
    sizes = [mp.sqrt(u[0] ** 2 + u[1] ** 2) for u in nodes]
    outputs = [*sizes[:-1], mp.mpf(-1)]
    total = mp.mpf(0)
    for a, u, s in zip(outputs, nodes, sizes, strict=True):
        for b, v, t in zip(outputs, nodes, sizes, strict=True):
            cosine = min(max((u[0] * v[0] + u[1] * v[1]) / (s * t), mp.mpf(-1)), mp.mpf(1))
            phi = mp.acos(cosine)
            total += a * b * 2 / mp.pi * s * t * (mp.sin(phi) + (mp.pi / 2 - phi) * cosine)
    return total / 2


@given(seeds)
def test_all_computations_agree_at_large_losses(seed):
    students, teachers = trials.random_problem(5, 3, 4, [seed])
    exact, slopes = trials.exact_gradient(students[0], teachers[0])
    assert trials.textbook_loss(students, teachers).item() == pytest.approx(exact, rel=1e-12, abs=1e-13)
    value, gradient = gaussian.loss_and_gradient(students, teachers)
    assert value.item() == pytest.approx(exact, rel=1e-12)
    torch.testing.assert_close(gradient[0], slopes, rtol=1e-10, atol=1e-12)
    assert trials.finite_difference_error(students, teachers) < 1e-8


def test_samples_detect_a_wrong_closed_form(monkeypatch):
    students, teachers = trials.random_problem(4, 3, 5, range(1, 21))
    found = trials.compare_with_samples(students, teachers, 10_000, range(1, 21))
    assert ((found.mean - found.closed) / found.error).abs().max() < 4
    exact = gaussian.loss_and_gradient
    monkeypatch.setattr(gaussian, "loss_and_gradient", lambda w, v: tuple(1.1 * part for part in exact(w, v)))
    wrong = trials.compare_with_samples(students, teachers, 10_000, range(1, 21))
    assert torch.equal(wrong.mean, found.mean)
    assert (((wrong.mean - wrong.closed) / wrong.error).abs() > 4).sum() > 10


def test_finite_differences_detect_a_wrong_gradient(monkeypatch):
    students, teachers = trials.random_problem(4, 3, 5, [1, 2])
    exact = gaussian.loss_and_gradient
    monkeypatch.setattr(gaussian, "loss_and_gradient", lambda w, v: (exact(w, v)[0], exact(w, v)[1] + 1e-6))
    assert (trials.finite_difference_error(students, teachers) > 1e-8).all()


def test_students_near_a_solution_have_losses_of_second_or_third_order():
    """Halving δ divides the loss by 4, or by 8 if the students of each node add up to it."""
    for order, seed in ((2, 2), (3, 1)):
        spans = ((delta, delta * 1.0000001) for delta in (2e-3, 1e-3))
        wide, near = (gaussian.loss(*trials.problem_near_solution(9, 3, 5, span, [seed])).item() for span in spans)
        assert math.log2(wide / near) == pytest.approx(order, abs=0.02)


def test_the_textbook_formula_is_noise_where_the_closed_form_is_right():
    found = trials.accuracy(*trials.problem_near_solution(9, 3, 5, (1e-6, 1e-5), [1, 3, 5]))
    assert found["exact"].max() < 1e-14
    assert (found["off"] < 1e-2).all() and (found["gradient_off"] < 1e-2).all()
    assert found["textbook_off"].min() > 1e-2


@pytest.mark.parametrize("k", [0, 1, 2, 4, 7, 20])
def test_quadrature_by_hand(k):
    """E|x| = √(2/π), E|x|h_2 = 1/√π, and 0 for odd k."""
    known = {0: math.sqrt(2 / math.pi), 2: 1 / math.sqrt(math.pi), 4: -1 / math.sqrt(12 * math.pi)}
    found = trials.hermite_by_quadrature(k)
    assert found == pytest.approx(known.get(k, 0.0 if k % 2 else gaussian.hermite(k)), abs=1e-14)


# ReLU networks.


def test_opposite_students_by_hand():
    """Three nodes that sum to zero: their opposites have exactly the same sum of ReLUs."""
    teachers = tensor([1.0, 0.0], [-0.5, 0.75], [-0.5, -0.75])
    students = theory.opposite_students(teachers)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((1_000, 2)))
    theirs = (x @ teachers.T).clamp_min(0).sum(1)
    ours = (x @ students.T).clamp_min(0) @ students.norm(dim=1)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)
    assert gaussian.loss(students, teachers, 0.0) < (16 * torch.finfo(F).eps) ** 2  # rounding, squared
    direction, line = theory.teacher_angles(students, teachers)
    assert (direction > 0.9).all() and (line < 1e-15).all()


@given(seeds, st.integers(3, 6), st.integers(3, 8))
def test_opposite_students_have_zero_loss_for_any_teacher_that_sums_to_zero(seed, nodes, dim):
    teachers = theory.zero_sum_teachers(nodes, dim, [seed], 0.2)
    torch.testing.assert_close(teachers.sum(1), torch.zeros(1, dim, dtype=F))
    assert least_angle(teachers) >= 0.2
    students = theory.opposite_students(teachers)
    assert gaussian.loss(students, teachers, 0.0) < 1e-28
    assert gaussian.loss_and_gradient(students, teachers, 0.0)[1].abs().max() < 1e-14
    assert (theory.teacher_angles(students, teachers)[0] >= least_angle(teachers) - 1e-12).all()
    # If the sum is not zero, the loss is that of a linear function: ½ ‖Σ w*‖², since f − f* = −Σ w*ᵀx.
    more = torch.cat([teachers[:, :-1], 1.5 * teachers[:, -1:]], 1)
    wanted = more.sum(1).square().sum() / 2
    assert gaussian.loss(theory.opposite_students(more), more, 0.0).item() == pytest.approx(wanted.item(), rel=1e-10)


@given(seeds)
def test_a_relu_teacher_is_a_linear_function_and_a_teacher_of_absolute_values(seed):
    teachers = theory.zero_sum_teachers(4, 3, [seed], 0.1) + 0.3
    x = torch.randn(50, 3, dtype=F, generator=torch.Generator().manual_seed(seed))
    relu = (x @ teachers[0].T).clamp_min(0).sum(1)
    torch.testing.assert_close(relu, x @ (teachers[0].sum(0) / 2) + (x @ (teachers[0] / 2).T).abs().sum(1))


def test_relu_descent_ends_at_opposite_directions():
    teachers = theory.zero_sum_teachers(3, 4, [1, 2])
    students = theory.opposite_starts(teachers, 3, [1, 2])
    assert theory.teacher_angles(students, teachers)[1] == pytest.approx(torch.full((2, 3), 0.3, dtype=F))
    end = descend(students, teachers, 0.05, 3_000, [3_000], slope=0.0)[0]
    assert gaussian.loss(end, teachers, 0.0).max() < 1e-6
    assert theory.teacher_angles(end, teachers)[0].min() > 0.3


def test_the_best_linear_term_leaves_a_quarter_of_the_loss_of_absolute_values():
    """A.1, by the exact loss: ½ ‖β‖² of the ReLU loss is that of the linear part, and is all that a fit removes."""
    teachers, students = random_teachers(3, 4, [1, 2]), theory.opposite_starts(random_teachers(3, 4, [1, 2]), 5, [1, 2])
    beta = theory.linear_term(students, teachers)
    left = gaussian.loss(students, teachers, 0.0) - beta.square().sum(-1) / 2
    torch.testing.assert_close(left, gaussian.loss(students, teachers) / 4)


def test_the_fitted_linear_term_converges_to_its_expectation():
    teachers = random_teachers(3, 4, [1, 2])
    students = theory.opposite_starts(teachers, 3, [1, 2])
    for samples, off in ((100, 0.5), (10_000, 0.05)):
        _, fitted = theory.descend_on_samples(students, teachers, 0.1, (0,), samples, [1, 2], linear=True)
        assert (fitted[0] - theory.linear_term(students, teachers)).norm(dim=-1).max() < off
        assert not theory.descend_on_samples(students, teachers, 0.1, (0,), samples, [1, 2], linear=False)[1].any()


def test_steps_on_samples_are_those_of_automatic_differentiation():
    """With β at its least-squares value the gradient of eq. 6 in W is that of R at this β."""
    teachers, seeds = random_teachers(3, 4, [3]), [3]
    start, drawn = theory.opposite_starts(teachers, 6, seeds), normal(3, Stream.TRAIN, 0, 64 * 50 * 4).view(64, 50, 4)
    for linear in (True, False):
        now = start[0]
        for step in range(2):
            x, w = drawn[step], now.clone().requires_grad_()
            residual = (x @ w.T).clamp_min(0) @ w.norm(dim=1) - (x @ teachers[0].T).clamp_min(0).sum(1)
            if linear:
                residual = residual - x @ torch.linalg.lstsq(x, residual.detach()[:, None]).solution[:, 0]
            (slope,) = torch.autograd.grad(residual.square().mean() / 2, w)
            now = now - 0.1 * slope
        path, _ = theory.descend_on_samples(start, teachers, 0.1, (0, 2), 50, seeds, linear)
        torch.testing.assert_close(path[1, 0], now)


def test_a_fitted_linear_term_makes_students_match_and_without_it_they_do_not():
    teachers = random_teachers(3, 4, [1, 2], 0.5)
    students = theory.opposite_starts(teachers, 3, [1, 2])
    far = {}
    for linear, rate in ((True, 0.2), (False, 0.05)):
        path, _ = theory.descend_on_samples(students, teachers, rate, (0, 3_000), 100, [1, 2], linear)
        far[linear] = theory.teacher_angles(path[-1], teachers)[1].amax(-1)
    assert far[True].max() < 0.01 < far[False].min()


def test_descent_on_samples_does_not_depend_on_the_other_networks():
    teachers = random_teachers(3, 4, [1, 2], 0.5)
    students = theory.opposite_starts(teachers, 3, [1, 2])
    both, _ = theory.descend_on_samples(students, teachers, 0.05, (0, 70), 100, [1, 2], linear=True)
    alone, _ = theory.descend_on_samples(students[1:], teachers[1:], 0.05, (0, 70), 100, [2], linear=True)
    assert torch.equal(alone, both[:, 1:])
    with pytest.raises(UserError, match="a linear term of 4 inputs needs at least as many samples, got 3"):
        theory.descend_on_samples(students, teachers, 0.1, (0,), 3, [1, 2], linear=True)


def test_a_fan_has_its_spacing_and_two_nodes_have_the_closed_form_eigenvalue():
    """λ_min = 2/π (Δ − sin Δ), about Δ³/3π."""
    for spacing in (0.01, 0.3, 1.5):
        pair = theory.fan(2, spacing)
        assert least_angle(pair).item() == pytest.approx(spacing, rel=1e-12)
        least = gaussian.least_eigenvalue(pair).item()
        assert least == pytest.approx(2 / math.pi * (spacing - math.sin(spacing)), rel=1e-8)
    assert least_angle(theory.fan(6, math.pi / 6)).item() == pytest.approx(math.pi / 6, rel=1e-12)


def test_impossible_zero_sum_teachers_are_rejected():
    with pytest.raises(UserError, match=r"need at least 3 nodes.*, got 2 nodes of 3 inputs"):
        theory.zero_sum_teachers(2, 3, [1])
    with pytest.raises(UserError, match="no 6 nodes of 2 inputs that sum to zero at angles of 1 or more"):
        theory.zero_sum_teachers(6, 2, [1], 1.0)


# The study.

SMALL = Identifiability(
    seeds=3,
    samples=2_000,
    digits=3,
    separation=(0.01, 0.1, 1.0),
    fan=(2, 3, 6),
    descents=2,
    teacher_nodes=(3,),
    dim=(3,),
    multiple=(1,),
    steps=2_000,
    batch=60,
)
FULL = {"seeds": 100, "samples": 50_000, "digits": 60, "descents": 20, "steps": 20_000, "batch": 250}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SMALL, tmp_path_factory.mktemp("identifiability"), Said())


def _as_if(**options):
    """The small study with the settings that its claims require."""
    return Identifiability(**(SMALL.options() | FULL | {"teacher_nodes": (3, 5), "dim": (3, 10)} | options))


def test_the_study_is_registered():
    assert studies()["identifiability"] is Identifiability


def test_every_problem_has_one_row(run):
    assert run.networks["network"].to_pylist() == list(range(run.networks.num_rows))
    assert run.table("problems").num_rows == 3 * len(studied.SIZES)
    assert run.table("solutions").num_rows == 3 * len(studied.SOLUTIONS)
    assert len(eigenvalues(run, arranged="fan")) == 3 + 3 + 2
    assert len(eigenvalues(run, arranged="random")) == 3 * 30
    assert run.table("coefficients").num_rows == 21 + len(studied.FAR)
    assert len(run.select(part="descent")) == 2
    assert len(run.select(part="reduction", linear=True)) == len(run.select(part="reduction", linear=False)) == 2
    assert run.networks.num_rows == 2 + 2 + 4
    assert not set(run.networks["diverged_at"].to_pylist()) - {None}


def test_results_agree_with_the_theory(run):
    assert np.abs(sampled_errors(run)[["loss", "slope"]].to_numpy()).max() < 5
    assert run.table("problems")["difference"].to_numpy().max() < 1e-8
    assert smallest_accurate(run, "off") <= smallest_accurate(run, "textbook_off")
    assert eigenvalue_slope(run) == pytest.approx(3, abs=0.05)
    assert decay(run) == pytest.approx(-2.5, abs=0.01)


def test_units_are_read_from_runs_that_stored_them_as_networks():
    networks = [{"part": "hermite", "k": 0}, {"part": "descent", "k": None}, {"part": "hermite", "k": 30}]
    values = {"coefficient": [[0.8], [np.nan], [0.1]], "quadrature": [[0.7], [np.nan], [np.nan]]}
    found = units(made_run(networks, metrics=values), "coefficients")
    assert found["k"].tolist() == [0, 30]
    assert found["coefficient"].tolist() == [0.8, 0.1]
    assert found["quadrature"][0] == 0.7 and np.isnan(found["quadrature"][1])


def test_sixty_digit_work_is_split_into_pieces():
    names = [piece.name for piece in Identifiability().pieces() if piece.name.startswith("60 digits, m = 60")]
    assert [name.split(", ")[-1] for name in names] == ["1 to 20", "21 to 40", "41 to 60"]


def test_the_story_has_all_figures_and_a_headline(run):
    story = SMALL.story(run)
    assert [f.name for f in story.figures] == ["accuracy", "relu", "least-eigenvalue", "sampled", "hermite"]
    assert all(isinstance(figure.kind, Kind) for figure in story.figures)
    assert "2 of 2 networks match within 0.01 rad" in story.headline


def test_a_small_run_decides_only_claims_without_required_settings(run):
    narrow = Identifiability(**(SMALL.options() | {"separation": (0.1, 1.0)}))
    assert [claim.id for claim in claims(narrow, run)] == ["Z12"]


def test_the_claims_are_the_listed_ones(run):
    found = claims(_as_if(), run)
    assert [(claim.id, claim.part) for claim in found] == [
        ("Z1", "Monte Carlo"),
        ("Z1", "differences"),
        ("Z1", "small losses"),
        ("Z9", ""),
        ("Z11", "ReLU"),
        ("Z11", "reduction"),
        ("Z12", ""),
    ]
    assert all(claim.holds for claim in found)
    assert {claim.id for claim in found} == set(Identifiability.decides.split())
    (printed,) = found[-1].variants
    assert not printed.holds
    assert "power −2.50" in printed.measured


@pytest.mark.parametrize(
    ("metric", "where", "by", "failing"),
    [
        ("loss_mean", "problems", lambda v: v + 100, ("Z1", "Monte Carlo")),
        ("difference", "problems", lambda v: v + 2e-8, ("Z1", "differences")),
        ("off", "solutions", lambda v: v + 0.02, ("Z1", "small losses")),
        ("gradient_off", "solutions", lambda v: v + 0.02, ("Z1", "small losses")),
        ("least_eigenvalue", "eigenvalues", lambda v: np.abs(v) ** 1.1, ("Z9", "")),
        ("loss", "claim 1", lambda v: v + 1e-20, ("Z11", "ReLU")),
        ("nearest", "claim 1", lambda v: 0.1 * v, ("Z11", "ReLU")),
        ("farthest_line", "reduction", lambda v: v + 0.02, ("Z11", "reduction")),
        ("farthest_line", "reduction", lambda v: np.minimum(v, 0.009), ("Z11", "reduction")),
        ("quadrature", "coefficients", lambda v: v + 2e-12, ("Z12", "")),
    ],
)
def test_values_outside_the_bounds_refute_a_claim(run, tmp_path, metric, where, by, failing):
    if where in run.tables:
        made = with_units(run, tmp_path, where, metric, by)
    else:
        made = with_values(run, tmp_path, metric, run.select(part=where).index, by)
    against = [(claim.id, claim.part) for claim in claims(_as_if(), made) if not claim.holds]
    assert against == [failing]


@pytest.mark.parametrize(("angle", "holds"), [(0.011, True), (0.009, False)])
def test_a_relu_student_that_ends_at_a_teacher_node_refutes_claim_1(run, tmp_path, angle, holds):
    one = run.select(part="descent").index[:1]
    found = claims(_as_if(), with_values(run, tmp_path, "nearest", one, lambda v: np.full_like(v, angle)))
    assert {(claim.id, claim.part): claim.holds for claim in found}["Z11", "ReLU"] is holds


def test_claim_1_is_decided_only_at_the_default_rate(run):
    assert "Z11" not in {claim.id for claim in claims(_as_if(rate=0.01), run)}


def test_a_rate_above_the_bound_causes_a_warning_and_diverged_descents_are_counted(tmp_path, capsys):
    assert Identifiability().warnings() == Identifiability.quick().warnings() == ()
    study = Identifiability(**(SMALL.options() | {"rate": 5.0, "steps": 50}))
    run = execute(study, tmp_path, Said())
    assert "warning: --rate 5 is above 0." in capsys.readouterr().err
    story = study.story(run)
    assert story.headline.startswith("All 2 networks of ReLU students near the opposite of teacher nodes diverged;")
    assert "6 of 6 descents diverged." in story.headline
    assert "Warning: --rate 5 is above" in story.headline
    assert "nan" not in story.headline and "–" not in story.headline
    assert "Zero loss" not in story.figures[1].title
    for figure in story.figures:
        figure.kind.paper()
        figure.kind.page()


def test_the_headline_reports_networks_that_did_not_diverge(run, tmp_path):
    one = run.select(part="descent").index[:1]
    headline = SMALL.story(with_values(run, tmp_path, "loss", one, lambda v: v * np.nan)).headline
    assert headline.startswith("ReLU students reach a loss of ")
    assert " 1 of 6 descents diverged." in headline


def test_impossible_teachers_are_rejected_before_anything_is_written(tmp_path):
    with pytest.raises(
        UserError, match="--teacher-nodes 20 with --dim 2: found no 20 nodes of 2 inputs that sum to zero"
    ):
        execute(Identifiability(**(SMALL.options() | {"teacher_nodes": (20,), "dim": (2,)})), tmp_path, Said())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fan": (3, 4)}, "--fan must include 2, got 3 4"),
        ({"separation": (0.1,)}, "--separation must have at least two values, got 0.1"),
        ({"separation": (0.1, 2.0)}, "--separation must be above 0 and at most π/2, got 2"),
        ({"teacher_nodes": (2,)}, "--teacher-nodes must be at least 3, got 2"),
        ({"dim": (1,)}, "--dim must be at least 2, got 1"),
        ({"batch": 19, "dim": (10,)}, "--batch must be at least twice --dim (20), got 19"),
        ({"rate": 0.0}, "--rate must be above 0, got 0"),
        ({"dtype": "float32"}, "--dtype must be float64, got float32"),
    ],
)
def test_invalid_options_are_rejected(options, words):
    with pytest.raises(UserError) as error:
        Identifiability(**options)
    assert str(error.value).startswith(words)
