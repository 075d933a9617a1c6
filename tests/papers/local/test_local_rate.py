"""The study local-rate: results, claims, and messages."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

import understudy as us
from support.changed_runs import with_units, with_values
from support.commands import Said
from understudy._errors import UserError
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.lab.study import named_pieces
from understudy.nets import Layer, Population
from understudy.papers.local.local_rate.claims import (
    LEMMAS,
    RIGHT,
    arrivals,
    below,
    claims,
    constants,
    end_ratios,
    envelope,
    exponent,
    exponents,
    gradient_errors,
    lojasiewicz,
    loss_slopes,
    searched,
    target,
)
from understudy.papers.local.local_rate.story import _losses
from understudy.papers.local.local_rate.study import LEVELS, LocalRate, RateSetting
from understudy.papers.local.theory.descent import sampled_gradient
from understudy.papers.local.theory.gaussian import gradient, loss_and_gradient
from understudy.papers.local.theory.geometry import least_angle
from understudy.papers.local.theory.smallest_gradient import threshold
from understudy.papers.local.theory.starts import nearest, place_near
from understudy.report.story import Kind

SMALL = LocalRate(
    seeds=2, r=(1, 3), d=(5,), multiple=(1, 2), separation=(0.5,), w_min=(1.0, 0.5), w_max=(1.0, 0.8), steps=3_000,
    batch=(1, 64), batch_multiple=2, batch_seeds=2, batch_steps=90, attempts=1,
)  # fmt: skip
SHORT = {"steps": 60, "batch_steps": 30}


def exact(run, **where):
    """Numbers of networks on the exact loss."""
    return run.select(part="exact", **where).index


def batched(run, batch):
    """Numbers of networks with mini-batches of this size; 0 is the exact loss beside them."""
    return run.select(part="batch", batch=batch).index


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SMALL, tmp_path_factory.mktemp("local-rate"), Said())


@pytest.fixture
def decided(monkeypatch, run):
    """Claims of the small run, with thresholds lowered so that it is large enough."""
    monkeypatch.setattr("understudy.papers.local.local_rate.claims.MULTIPLES", SMALL.multiple)
    monkeypatch.setattr("understudy.papers.local.local_rate.claims.SEEDS", SMALL.seeds)
    monkeypatch.setattr("understudy.papers.local.local_rate.claims.BATCH_STEPS", SMALL.batch_steps)
    monkeypatch.setattr("understudy.papers.local.local_rate.claims.BATCH_SEEDS", SMALL.batch_seeds)
    monkeypatch.setattr("understudy.papers.local.local_rate.claims.ATTEMPTS", SMALL.attempts)
    monkeypatch.setattr("understudy.papers.local.local_rate.claims._CROWD", 2)
    return lambda on=run: {(claim.id, claim.part): claim for claim in claims(SMALL, on)}


def test_the_study_is_registered():
    assert studies()["local-rate"] is LocalRate


def test_every_setting_and_number_of_students_has_its_networks(run):
    assert run.networks["network"].to_pylist() == list(range(run.networks.num_rows))
    assert len(SMALL.settings()) == 4
    assert len(exact(run)) == 2 * 2 * 2 * 2
    assert len(exact(run, multiple=1, r=3, w_max=0.8)) == 2
    assert [len(batched(run, batch)) for batch in (0, 1, 64)] == [2, 2, 2]
    assert run.networks["diverged_at"].null_count == run.networks.num_rows


def test_one_neuron_is_run_once_for_all_separations():
    study = LocalRate(r=(1, 2), d=(5,), separation=(0.2, 0.5), w_min=(1.0,), w_max=(1.0,))
    assert study.settings() == [
        RateSetting(1, 5, math.pi / 2, 1.0, 1.0),
        RateSetting(2, 5, 0.2, 1.0, 1.0),
        RateSetting(2, 5, 0.5, 1.0, 1.0),
    ]


def test_teachers_satisfy_their_setting(run):
    assert (run.column("delta") >= run.column("separation") - 1e-9).all()
    assert (run.column("shortest") >= run.column("w_min") - 1e-12).all()
    assert (run.column("longest") <= run.column("w_max") + 1e-12).all()


def test_descent_agrees_with_a_plain_loop(run):
    setting = next(s for s in SMALL.settings() if (s.r, s.w_max) == (3, 1.0))
    teachers = SMALL.teachers(setting, (1, 2))
    students = place_near(teachers, 6, SMALL.angle * least_angle(teachers), (1, 2)).students
    step = next(step for step in SMALL.probes if step > 100)
    for _ in range(step):
        students = students - 0.05 * loss_and_gradient(students, teachers)[1]
    found = run.array("loss", "seed", part="exact", r=3, w_max=1.0, multiple=2, epoch=step)
    assert found.values == pytest.approx(loss_and_gradient(students, teachers)[0].numpy(), rel=1e-9)


def test_convergence_is_linear_without_and_a_power_law_with_over_parameterisation(run):
    assert (loss_slopes(run.select(part="exact", r=3, multiple=1), 1_000, 3_000) < -5).all()
    power = loss_slopes(run.select(part="exact", r=3, multiple=2), 1_000, 3_000)
    assert ((power < -1) & (power > -3.2)).all()


def test_exponents_of_power_laws_are_recovered(run):
    loss = np.geomspace(1e-9, 1e-2, 20)
    assert exponent(loss, 3 * loss**0.375) == pytest.approx(0.375)
    assert math.isnan(exponent(loss[:4], loss[:4]))
    assert math.isnan(exponent(np.linspace(1, 2, 20), np.ones(20)))
    assert exponent(np.append(loss, np.nan), np.append(loss, 1.0)) == pytest.approx(1.0)


def test_the_threshold_is_that_of_the_search(run):
    where, loss = below(run), run.series("loss")
    for setting in SMALL.settings():
        networks = exact(run, **setting._asdict(), multiple=2)
        most = threshold(SMALL.teachers(setting, (1, 2))).numpy()[:, None]
        clear = np.isfinite(loss[networks]) & (np.abs(loss[networks] / most - 1) > 1e-6)
        wanted = (loss[networks] <= most) & (loss[networks] > 1e-20)
        assert (where[networks] == wanted)[clear].all()
        assert where[networks].any(1).all()


def test_students_start_nearer_to_their_teacher_neuron_than_to_any_other():
    study = LocalRate(r=(5,), d=(2,), separation=(0.2,))
    (setting, *_) = study.settings()
    teachers = study.teachers(setting, range(1, 11))
    which, angles = nearest(study._place(teachers, 2, range(1, 11)), teachers)
    assert which.tolist() == [[0, 1, 2, 3, 4] * 2] * 10
    torch.testing.assert_close(angles, 0.4 * least_angle(teachers).unsqueeze(1).expand(10, 10))


def test_the_gradient_is_bounded_below_and_pl_fails_for_two_students_of_one_teacher(run):
    assert np.nanmin(lojasiewicz(run)[exact(run)]) > 0.4
    two = exponents(run, "squared_ratio", exact(run, r=1, multiple=2))
    assert two == pytest.approx([0.4] * 4, abs=0.15)
    one = run.series("squared_ratio") / run.column("shortest")[:, None]
    small = (run.series("loss") < 1e-8) & (run.series("loss") > 1e-18)
    assert one[exact(run, r=1, multiple=1)][small[exact(run, r=1, multiple=1)]] == pytest.approx(2.0, rel=1e-3)


def test_the_search_keeps_below_its_level_and_beats_descents(run):
    for level in LEVELS:
        some, scaled = searched(run, level)
        assert len(some) == 4 * 2 * 2
        assert (some.end("loss") <= some.column("level_loss") * (1 + 1e-6)).all()
        assert (scaled > 0).all()
    for m in (1, 2):
        some, scaled = searched(run, 1.0)
        assert scaled[some.column("multiple") == m].min() < np.nanmin(lojasiewicz(run)[exact(run, multiple=m)])


def test_sampled_gradients_are_compared_with_the_exact_one(run):
    setting = next(s for s in SMALL.settings() if (s.r, s.w_max) == (3, 1.0))
    teachers = SMALL.teachers(setting, (1, 2))
    students = SMALL._place(teachers, 2, (1, 2))
    away = torch.stack(
        [
            sampled_gradient(students, teachers, 64, (1, 2), step) - gradient(students, teachers)
            for step in range(90, 190)
        ]
    )
    wanted = away.flatten(2).norm(dim=-1)
    found = gradient_errors(run)
    found = found[(found["r"] == 3) & (found["w_max"] == 1.0) & (found["batch"] == 64)]
    assert found["error"].to_numpy() == pytest.approx(wanted.square().mean(0).sqrt().numpy(), rel=1e-9)
    bound = np.sqrt(27 * 25 / (64 * 0.1))
    assert found["constant"].to_numpy() == pytest.approx(np.quantile(wanted, 0.9, axis=0) / bound, rel=1e-9)


def test_constants_of_lemmas_are_finite_along_the_runs(run):
    for name in LEMMAS:
        found = constants(run, name)
        assert len(found) == len(exact(run))
        assert np.isfinite(np.nanmax(found, axis=1)).all()
        assert (np.nanmax(found, axis=1) > 0).all()


def test_the_envelope_is_the_largest_over_all_runs(run, decided):
    loss, most = envelope(SMALL, run, "lemma C.4")
    left = run.series("lemma C.4 left")[exact(run)]
    for at, value in zip(loss, most, strict=True):
        inside = np.abs(np.log10(run.series("loss")[exact(run)] / at)) <= 1 / 8
        inside &= below(run)[exact(run)]
        assert value == pytest.approx(left[inside].max())
    assert len(loss) > 5 and loss.max() > 100 * loss.min()


def test_lemmas_are_not_decided_by_few_runs_below_the_threshold(run, decided, monkeypatch):
    monkeypatch.setattr("understudy.papers.local.local_rate.claims._CROWD", 1_000)
    claim = decided()["Z8", "lemma 8"]
    assert claim.holds is None
    assert claim.would_decide.startswith("enough runs below the threshold")


def test_larger_batches_are_nearer_to_the_exact_loss(run):
    small, large = np.abs(np.log(end_ratios(SMALL, run))).max("seed").values
    assert large < min(small, 0.5)


def test_mini_batches_do_not_depend_on_how_the_work_is_split(monkeypatch):
    def found(work):
        monkeypatch.setattr("understudy.papers.local.local_rate.study._WORK", work)
        study = LocalRate(**(SMALL.options() | {"batch": (4,), "batch_steps": 20}))
        parts = [make() for name, make in named_pieces(study).items() if name.startswith("mini-batches")]
        return pa.concat_tables([part["metrics"] for part in parts]).sort_by([("network", "ascending")])

    one, whole = found(1), found(10**9)
    assert one["network"].to_pylist() == whole["network"].to_pylist()
    loss = pc.equal(one["metric"], "loss")
    assert one.filter(loss)["value"].to_pylist() == whole.filter(loss)["value"].to_pylist()
    # Other metrics sum over whole probes, of one network or of several.
    assert one["value"].to_pylist() == pytest.approx(whole["value"].to_pylist(), rel=1e-6, abs=1e-12)


def test_the_story_has_all_figures_and_a_headline(run):
    story = SMALL.story(run)
    assert [figure.name for figure in story.figures] == ["loss", "ratio", "pl", "lemmas", "batches", "samples"]
    assert all(isinstance(figure.kind, Kind) for figure in story.figures)
    assert story.headline.startswith("Between steps 1,000 and 3,000 the loss falls with a log-log slope of −")


def test_a_small_run_decides_nothing(run):
    assert claims(SMALL, run) == []
    assert claims(LocalRate.quick(), run) == []


def test_the_claims_are_the_listed_ones(decided):
    found = decided()
    assert {id for id, _ in found} == set(LocalRate.decides.split())
    assert [part for id, part in found if id == "Z8"] == list(LEMMAS)
    assert all(claim.holds for (id, _), claim in found.items() if id in ("Z2", "Z3", "Z4"))


@pytest.mark.parametrize(
    ("metric", "where", "by", "failing"),
    [
        ("loss", {"r": 3, "multiple": 2, "w_max": 1.0}, lambda v: np.abs(v) ** 0.3, ("Z2", "")),
        ("squared_ratio", {"r": 1, "multiple": 1}, lambda v: v / 3, ("Z4", "as many students")),
        ("squared_ratio", {"r": 1, "multiple": 2}, np.ones_like, ("Z4", "over-parameterised")),
        ("lemma C.4 left", {"r": 3, "multiple": 2}, lambda v: np.abs(v) ** 0.3, ("Z8", "lemma C.4")),
        ("lemma 9 left", {"r": 3, "multiple": 2}, lambda v: 1e9 * v, ("Z8", "lemma 9")),
    ],
)
def test_values_outside_the_bounds_refute_a_claim(run, decided, tmp_path, metric, where, by, failing):
    before = decided()[failing]
    after = decided(with_values(run, tmp_path, metric, exact(run, **where), by))[failing]
    assert before.holds
    assert not after.holds
    assert after.measured != before.measured


def test_a_different_end_loss_refutes_z10(run, decided, tmp_path):
    wrong = decided(with_values(run, tmp_path, "loss", batched(run, 64), lambda v: 9 * v))
    assert not wrong["Z10", "end loss"].holds
    assert not wrong["Z10", "end loss"].variants[0].holds


def test_gradients_that_do_not_concentrate_refute_z10(run, decided, tmp_path):
    assert decided()["Z10", "gradients"].holds
    flat = with_units(run, tmp_path, "gradients", "error", np.ones_like)
    assert not decided(flat)["Z10", "gradients"].holds
    (tmp_path / "far").mkdir()
    far = with_units(run, tmp_path / "far", "gradients", "quantile", lambda v: 100 * v)
    assert not decided(far)["Z10", "gradients"].holds


@pytest.mark.parametrize(
    ("ends", "holds"),
    [((0.5, 2, 0.6), True), ((0.5, 0.7, 0.6), True), ((0.5, 0.6, 2), False), ((2, 0.5, 0.6), None)],
)
def test_z10_needs_a_share_that_does_not_fall_and_descent_that_arrives(run, decided, tmp_path, ends, holds):
    """End losses relative to ε of descent on the exact loss, and with small and large batches."""
    made = run
    for batch, end in zip((0, *SMALL.batch), ends, strict=True):
        made = with_values(
            made, tmp_path, "loss", batched(run, batch), lambda v, end=end: np.full_like(v, end * target(SMALL))
        )
    assert arrivals(SMALL, made).sel(batch=0).to_numpy().tolist() == [float(ends[0] < 1)] * 2
    claim = decided(made)["Z10", "share"]
    assert claim.holds is holds
    assert claim.would_decide == (
        "more steps, until descent on the exact loss reaches ε in every run" if holds is None else ""
    )


def test_a_stationary_point_below_the_threshold_refutes_z3(run, decided, tmp_path):
    one = searched(run, 1.0)[0].index[:1]
    claim = decided(with_values(run, tmp_path, "ratio", one, np.zeros_like))["Z3", ""]
    assert claim.holds is False
    assert "1 of 16 below" in claim.measured
    above = searched(run, 100.0)[0].index
    beside = decided(with_values(run, tmp_path, "ratio", above, np.zeros_like))["Z3", ""]
    assert beside.holds
    assert [variant.holds for variant in beside.variants][1] is False


def test_claims_are_decided_only_at_their_settings(run, decided, monkeypatch):
    every = decided()
    for option in ({"angle": 0.3}, {"rate": 0.04}, {"by": "flow"}):
        assert claims(dataclasses.replace(SMALL, **option), run) == []
    monkeypatch.setattr("understudy.papers.local.local_rate.claims.BATCH_STEPS", SMALL.batch_steps + 1)
    assert set(every) - set(decided()) == {("Z10", "end loss"), ("Z10", "share")}
    assert LocalRate().batch_steps == 2_000


def test_end_losses_that_are_rounding_are_reported(run, decided, tmp_path):
    some = exact(run, r=3, multiple=1, w_max=1.0)
    assert "the end loss a rounding error in 2 of 2 runs" in decided()["Z2", ""].measured.split(";")[0]
    one = decided(with_values(run, tmp_path, "loss", some[:1], lambda v: np.full_like(v, 1e-3)))["Z2", ""].measured
    assert "the end loss a rounding error in 1 of 2 runs" in one.split(";")[0]
    left = decided(with_values(run, tmp_path, "loss", some, lambda v: np.full_like(v, 1e-3)))["Z2", ""].measured
    assert "rounding" not in left.split(";")[0]


@pytest.mark.parametrize("name", list(LEMMAS))
def test_the_statement_of_a_lemma_contains_its_right_side(run, decided, name):
    """The printed formula, evaluated, agrees with the recorded values."""
    statement = decided()["Z8", name].statement
    assert f"left side ≤ C {RIGHT[name]}, over" in statement
    assert "≥ proved − 0.05" in statement
    columns = {"r": "r", "w_max": "longest", "w_min": "shortest", "Δ": "delta"}
    networks, value = exact(run), 1.0
    for factor in RIGHT[name].split():
        base, _, power = factor.partition("^")
        of = run.series("loss") if base == "L" else run.column(columns[base])[:, None]
        value = value * of[networks] ** float(Fraction(power.strip("()").replace("−", "-") or 1))
    wanted = run.series(f"{name} right")[networks]
    there = np.isfinite(wanted)
    assert np.broadcast_to(value, wanted.shape)[there] == pytest.approx(wanted[there], rel=1e-9)


def test_titles_describe_the_losses(run, tmp_path):
    def texts(by, where):
        story = SMALL.story(with_values(run, tmp_path, "loss", where, by))
        return story.headline, story.figures[0].title

    shown = exact(run, r=3, w_max=1.0)
    assert SMALL.story(run).figures[0].title == "The loss falls faster than 1/t, for any number of students"
    headline, title = texts(lambda v: 1 / np.where(v > 0, v, 1), shown)
    assert headline.startswith("Between steps 1,000 and 3,000 the loss rises with a log-log slope of ")
    assert title == "The loss does not fall in 4 of 4 runs"
    headline, title = texts(lambda v: np.abs(v) ** 0.3, exact(run, r=3, multiple=2, w_max=1.0))
    assert "the loss falls with" in headline
    assert title == "The loss falls, but not faster than 1/t in 2 of 4 runs"


def test_figures_without_a_probe_below_the_threshold_are_omitted(run, tmp_path):
    def story(where):
        found = SMALL.story(with_values(run, tmp_path, "lemma 8 right", where, lambda v: v + 100))
        for figure in found.figures:
            figure.kind.paper()
            figure.kind.page()
        return found

    nowhere = story(range(run.networks.num_rows))
    assert [figure.name for figure in nowhere.figures] == ["loss", "ratio", "batches", "samples"]
    assert {series.label[:6] for panel in nowhere.figures[1].kind.panels for series in panel.series} == {"search"}
    one = {figure.name: figure.kind for figure in story(exact(run, r=3)).figures}
    assert [panel.title for panel in one["ratio"].panels] == ["r = 1", "r = 3"]
    assert [panel.title for panel in one["pl"].panels] == ["r = 1"]


def test_titles_claim_only_what_was_measured(run, tmp_path):
    def titles(metric, by, where):
        found = SMALL.story(with_values(run, tmp_path, metric, where, by))
        return {figure.name: figure.title for figure in found.figures}

    assert titles("ratio", lambda v: v, [])["ratio"] == "The gradient is bounded below by the loss"
    assert titles("ratio", lambda v: v / 1e4, run.select(part="search", r=3).index)["ratio"] == "Gradient and loss"
    assert "fails" in titles("ratio", lambda v: v, [])["pl"]
    assert "fails" not in titles("squared_ratio", np.ones_like, exact(run, r=3, multiple=2))["pl"]
    alike = titles("loss", np.ones_like, [*batched(run, 0), *batched(run, 1)])["batches"]
    assert alike.startswith("Small mini-batches do as well")
    different = titles("loss", lambda v: 9 * v, batched(run, 1))["batches"]
    assert different == "Mini-batches and the exact loss"


def test_a_rate_above_the_bound_causes_a_warning(tmp_path, capsys):
    study = LocalRate(**(SMALL.options() | {"rate": 2.0, "r": (3,), "w_min": (1.0,), "w_max": (1.0,)} | SHORT))
    run = execute(study, tmp_path, Said())
    assert "warning: --rate 2 is above 0." in capsys.readouterr().err
    assert "networks diverged. Warning: --rate 2 is above" in study.story(run).headline
    assert run.networks["diverged_at"].null_count < run.networks.num_rows
    assert (run.folder / "report.html").is_file()
    assert LocalRate().warnings() == LocalRate.quick().warnings() == ()


def test_a_teacher_from_a_file_is_studied_from_every_seed(tmp_path):
    lower, upper = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]]), torch.tensor([[[1.0, 0.25]]])
    us.save(Population((Layer(lower, None), Layer(upper, None)), torch.tensor([1]), -1.0), tmp_path / "t.safetensors")
    study = LocalRate(**(SMALL.options() | {"teacher": str(tmp_path / "t.safetensors"), "seeds": 3} | SHORT))
    made = [make() for make in named_pieces(study).values()]
    networks = pa.concat_tables([part["networks"] for part in made if "networks" in part], promote_options="default")
    assert {(row["r"], row["d"], row["shortest"], row["longest"]) for row in networks.to_pylist()} == {(2, 3, 0.5, 1.0)}
    assert networks["delta"].to_numpy() == pytest.approx(math.pi / 2)
    assert networks.num_rows == 3 * 2 + 3 * 2 * 3 + 2 * 3
    first = made[1]["metrics"].filter((pc.field("metric") == "loss") & (pc.field("epoch") == 0))
    assert len(set(first["value"].to_pylist())) == 3
    assert claims(study, None) == []


def test_the_angle_of_a_teacher_from_a_file_is_exact(run):
    own = dataclasses.replace(SMALL, teacher="mine.safetensors")
    setting = next(s for s in SMALL.settings() if s.r == 3)
    (drawn,), (mine,) = (_losses(study, run, [setting]).panels for study in (SMALL, own))
    assert "Δ ≥ 0.5" in drawn.title
    assert "Δ = 0.5" in mine.title


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"r": (0,)}, "--r must be at least 1, got 0"),
        ({"d": (1,)}, "--d must be at least 2, got 1"),
        ({"multiple": (2, 2)}, "--multiple takes each value once, got 2 2"),
        ({"separation": (0.0,)}, "--separation must be above 0 and at most π/2, got 0"),
        ({"separation": (2.0,)}, "--separation must be above 0 and at most π/2, got 2"),
        ({"w_min": (0.0,), "w_max": (1.0,)}, "--w-min must be above 0, got 0"),
        ({"w_min": (2.0,), "w_max": (1.0,)}, "--w-max must be at least its --w-min (2), got 1"),
        ({"w_min": (1.0,)}, "--w-max must have one value for each of --w-min, and no pair twice, got 2 for 1"),
        ({"angle": 0.5}, "--angle must be above 0 and below 0.5, got 0.5"),
        ({"attempts": 0}, "--attempts must be at least 1, got 0"),
        ({"rate": 0.0}, "--rate must be above 0, got 0"),
        ({"batch": (0,)}, "--batch must be at least 1, got 0"),
    ],
)
def test_invalid_options_are_rejected(options, words):
    with pytest.raises(UserError) as error:
        LocalRate(**options)
    assert str(error.value).startswith(words)


def test_impossible_separations_are_rejected_before_anything_is_written(tmp_path):
    with pytest.raises(UserError, match=r"--separation: 6 lines in 2 dimensions cannot be separated by 0\.6"):
        execute(LocalRate(r=(6,), d=(2,), separation=(0.6,)), tmp_path, Said())
    assert not list(tmp_path.iterdir())


def test_flow_is_the_limit_of_descent_at_small_rates():
    small = {"seeds": 2, "r": (2,), "d": (3,), "multiple": (2,), "steps": 200, "batch": (1,), "batch_steps": 1}
    same = {"separation": (0.5,), "w_min": (1.0,), "w_max": (1.0,)}
    ends = {}
    for by, rate, steps in (("flow", 0.05, 200), ("descent", 0.05, 200), ("descent", 0.005, 2_000)):
        study = LocalRate(**(small | same | {"by": by, "rate": rate, "steps": steps}))
        made = [make() for name, make in named_pieces(study).items() if name.startswith("r = ")]
        rows = pa.concat_tables([part["metrics"] for part in made]).to_pylist()
        last = sorted((r["network"], r["value"]) for r in rows if r["metric"] == "loss" and r["epoch"] == steps)
        ends[by, rate] = np.array([value for _, value in last])
        assert len(last) == 2
    flowed, coarse, fine = ends.values()
    assert flowed == pytest.approx(fine, rel=5e-3)
    assert np.abs(fine / flowed - 1).max() < np.abs(coarse / flowed - 1).max() / 5
