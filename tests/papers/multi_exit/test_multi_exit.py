"""The study `multi-exit`: its networks, its claims on tables with known numbers, and errors of its options."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from support.runs import run_of
from understudy import UserError
from understudy.papers.multi_exit.multi_exit.claims import claims
from understudy.papers.multi_exit.multi_exit.results import accuracies, accuracy_table, published
from understudy.papers.multi_exit.multi_exit.story import story
from understudy.papers.multi_exit.multi_exit.study import ExitSetting, MultiExitStudy
from understudy.papers.multi_exit.published import BUDGET, DISTILLATION, EXIT_WISE, LOSSES, SEMI_SUPERVISED
from understudy.papers.multi_exit.shapes import Shapes
from understudy.report.figures import Curves

EXITS, EPOCHS = 11, 300
EXTRA = {"T = 1": -1.5, "T = 2": -0.2, "T = 4": 0.1, "all later teachers": 0.3}
"""Points by which made networks with other temperatures or teachers differ from those with the thesis' accuracies."""


def made(study, *, shift=0.0, adjusted=0.45, changes=None, apart=None):
    """A run whose networks have the thesis' accuracies, except for `shift` and `changes` by setting, in points.

    `apart` has the points from each seed to the next, by setting.
    """
    networks, budgets, metrics = [], [], []
    for group in study.members():
        for member in group:
            number, label = len(networks), member.setting.label
            networks.append({"network": number, "seed": member.seed, "images": member.images, "setting": label})
            networks[-1] |= {"loss": member.setting.loss, "diverged_at": None}
            more = shift + EXTRA.get(label.removeprefix(f"{DISTILLATION}, "), 0.0) + (changes or {}).get(label, 0.0)
            more += (0.2 + (apart or {}).get(label, 0.0)) * (member.seed - np.mean(study.seed_names))
            for at in range(EXITS):
                row = {"network": number, "exit": at + 1}
                for mode in ("budget", "anytime"):
                    value = published(member.images, member.setting.loss, mode)[at].value + more
                    row |= {f"{mode}_top5": value / 100, f"{mode}_top1": value / 150}
                budgets.append(row)
            for epoch in range(1, EPOCHS + 1):
                for metric, value in (("confidence", 0.6), ("adjusted", adjusted), ("temperature", 1 + epoch / 100)):
                    metrics.append({"network": number, "epoch": epoch, "layer": -1, "metric": metric, "value": value})
    for number in range(len(networks)):
        for layer in range(EXITS - 1):
            metrics.append({"network": number, "epoch": 0, "layer": layer, "metric": "rho_mean", "value": 0.5})
    exits = [
        {"network": n["network"], "epoch": e, "set": "validation", "exit": x, "top1": 0.3, "top5": 0.5}
        for n in networks
        for e in (0, EPOCHS)
        for x in (1, EXITS)
    ]
    times = [
        {
            "architecture": "made" if study.on_made else "cifar",
            "device": "cpu",
            "mode": mode,
            "exit": x,
            "median": x * scale,
            "repeats": 100,
        }
        for mode, scale in (("budget", 1.0), ("anytime", 1.5))
        for x in range(1, EXITS + 1)
    ]
    nodes = [
        {"network": 0, "epoch": EPOCHS, "layer": 0, "role": "pair", "teacher": 0, "student": 0, "correlation": 0.5}
    ]
    rows = {
        "networks": networks,
        "budgets": budgets,
        "metrics": metrics,
        "exits": exits,
        "times": times,
        "nodes": nodes,
    }
    tables = {name: pa.Table.from_pylist(each) for name, each in rows.items()}
    return run_of(tables, np.arange(EPOCHS + 1), {}, study.config())


def decided(study, **how):
    return {claim.part: claim for claim in claims(study, made(study, **how))}


@pytest.fixture(scope="module")
def whole():
    return MultiExitStudy(
        seeds=2, images=(150, 250), temperatures=("annealed", "1", "2", "4"), teachers=("last", "later")
    )


class TestClaims:
    def test_the_thesis_agrees_with_itself(self, whole):
        found = decided(whole)
        assert len(found) == 2 * (3 + 1 + 1 + 1 + 1 + 1) + 1
        assert all(claim.holds for claim in found.values()), [part for part, c in found.items() if not c.holds]
        assert found["CIFAR(150), distillation"].n == 2

    @pytest.mark.parametrize(("points", "holds"), [(1.4, True), (1.6, False), (-1.4, True), (-1.6, False)])
    def test_a_point_and_a_half_is_the_bound(self, points, holds):
        study = MultiExitStudy(losses=(EXIT_WISE,))
        assert decided(study, shift=points)["CIFAR(150), exit-wise"].holds is holds

    def test_the_order_of_losses_is_decided_at_exit_1(self):
        first = [BUDGET[150, loss][0].value for loss in LOSSES]
        assert first == sorted(first)
        found = decided(MultiExitStudy(), changes={SEMI_SUPERVISED: -1.3})
        assert not found["CIFAR(150), order"].holds
        assert found["CIFAR(150), semi-supervised"].holds

    @pytest.mark.parametrize(("adjusted", "holds"), [(0.41, True), (0.39, False), (0.5, True), (0.51, False)])
    def test_the_confidence_stays_within_a_tenth_below_its_limit(self, adjusted, holds):
        study = MultiExitStudy(losses=(DISTILLATION,), seeds=1)
        assert decided(study, adjusted=adjusted)["confidence, CIFAR(150)"].holds is holds

    def test_temperature_one_must_be_a_point_worse(self, whole):
        found = decided(whole, changes={"distillation, T = 1": 0.6})
        assert not found["T = 1, CIFAR(150)"].holds

    def test_annealing_may_lose_half_a_point(self, whole):
        found = decided(whole, changes={"distillation, T = 2": 0.8})
        assert not found["constant temperatures, CIFAR(250)"].holds

    def test_teachers_change_less_than_a_point(self, whole):
        found = decided(whole, changes={"distillation, all later teachers": 0.8})
        assert not found["choice of teachers, CIFAR(150)"].holds

    @pytest.mark.parametrize("option", [{"epochs": 299}, {"rate": 0.1}, {"layers": 26, "exits": (26,)}, {"test": 100}])
    def test_other_settings_decide_nothing(self, option):
        assert not claims.applies(MultiExitStudy(**option))

    def test_one_seed_is_no_mean(self):
        assert not any("exit-wise" in part for part in decided(MultiExitStudy(seeds=1)))


def test_accuracies_have_their_standard_error(whole):
    found = accuracies(made(whole), 150, DISTILLATION, "budget")
    theirs = np.array([each.value for each in published(150, DISTILLATION, "budget")])
    np.testing.assert_allclose(found.mean, theirs, rtol=1e-12)
    np.testing.assert_allclose(found.spread, 1.96 * 0.1, rtol=1e-9)  # two values 0.2 apart


def test_the_table_is_beside_the_thesis(whole):
    rows = accuracy_table(whole, made(whole, shift=0.5)).to_pandas()
    assert len(rows) == 2 * 7 * 2 * EXITS
    known = rows.dropna(subset="thesis")
    assert set(known["setting"]) == set(LOSSES)
    np.testing.assert_allclose(known["difference"], 0.5, atol=1e-9)


def test_the_story_draws_what_the_run_has(whole):
    drawn = story(whole, made(whole))
    assert [figure.name for figure in drawn.figures] == [
        "budget",
        "ensembles",
        "validation",
        "confidence",
        "temperatures",
        "teachers",
        "channels",
        "matched-channels",
        "times",
    ]


class TestHeadline:
    def test_distillation_raises_or_lowers_accuracy(self, whole):
        higher, lower = (story(whole, made(whole, changes={DISTILLATION: points})).headline for points in (0.0, -8.0))
        assert higher.startswith(
            "Distillation raises the top-5 accuracy of exit 1 from 72.4% to 78.7%, by +6.3 ± 0.0 points. That of exit "
            "11 changes by +0.8 ± 0.0 points."
        )
        assert lower.startswith("Distillation lowers the top-5 accuracy of exit 1 from 72.4% to 70.7%, by −1.7 ± 0.0")

    @pytest.mark.parametrize(("apart", "words"), [(6.0, "raises"), (7.0, "changes")])
    def test_a_difference_within_its_error_over_seeds_is_said(self, apart, words):
        study = MultiExitStudy()
        run = made(study, apart={DISTILLATION: apart})
        spread = 1.96 * apart / 2  # of two differences, `apart` from each other
        said = story(study, run).headline
        assert said.startswith(f"Distillation {words} the top-5 accuracy of exit 1 from 72.4% to 78.7%, by +6.3 ± ")
        assert f"± {spread:.1f} points" in said
        assert ("no more than seeds differ" in said) == (words == "changes")

    def test_one_seed_has_no_error(self):
        study = MultiExitStudy(seeds=1)
        assert "from 72.4% to 78.7%, by +6.3 points. That" in story(study, made(study)).headline


@pytest.fixture(scope="module")
def on_made():
    return MultiExitStudy(made=200)  # otherwise as in the thesis


class TestMadeImages:
    def test_take_the_place_of_cifar100_only_without_a_folder(self, tmp_path, on_made):
        assert isinstance(MultiExitStudy.quick().source(), Shapes)
        assert on_made.grid.classes == 20 and on_made.exit_plan(on_made.members()[0]).per_class == 150
        with pytest.raises(UserError, match=r"--data: .*download.*--made"):
            replace(MultiExitStudy.quick(), data=str(tmp_path)).source()
        assert replace(MultiExitStudy.quick(), data=str(tmp_path)).grid.classes == 100

    def test_decide_no_claim(self, on_made):
        assert claims.applies(replace(on_made, made=0)) and not claims.applies(on_made)

    def test_are_named_and_have_no_numbers_of_the_thesis_beside_them(self, on_made):
        drawn = story(on_made, made(on_made))
        assert "With 150 made images of forms and patterns per class" in drawn.headline
        kinds = {figure.name: figure.kind for figure in drawn.figures}
        panels = [panel for kind in kinds.values() if isinstance(kind, Curves) for panel in kind.panels]
        assert panels and not any(series.dashed for panel in panels for series in panel.series)
        assert [panel.title for panel in kinds["budget"].panels] == ["150 made images per class"]
        assert not any("CIFAR" in words for words in (drawn.headline, *(panel.title for panel in panels)))
        assert not any("CIFAR" in figure.caption or "thesis" in figure.caption for figure in drawn.figures)
        assert not {"thesis", "difference"} & set(accuracy_table(on_made, made(on_made)).column_names)
        assert all(on_made.file(member).startswith("made150-") for group in on_made.members() for member in group)

    def test_are_judged_by_the_most_probable_class(self, on_made):
        theirs = published(150, DISTILLATION, "budget")[0].value
        shown = story(on_made, made(on_made)).headline
        assert (
            f"Distillation raises the top-1 accuracy of exit 1 from {72.4 / 1.5:.1f}% to {theirs / 1.5:.1f}%" in shown
        )


def test_networks_of_a_group_have_one_form_of_batches(whole):
    groups = whole.members()
    assert [len(group) for group in groups] == [2 * 6, 2, 2 * 6, 2]
    for group in groups:
        assert len({member.setting.loss == SEMI_SUPERVISED for member in group}) == 1
        assert len({member.images for member in group}) == 1
    files = [whole.file(member) for group in groups for member in group]
    assert len(set(files)) == len(files)
    assert ExitSetting(DISTILLATION, "2.0", "last").label == "distillation, T = 2"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"images": (50,)}, "--images"),
        ({"images": (501,)}, "--images"),
        ({"made": 149}, "--images must be at most the made images of a class (--made 149), got 150"),
        ({"made": 150, "losses": ("semi-supervised",)}, "--images below 150: with 150, no image is unlabelled"),
        ({"temperatures": ("warm",)}, "--temperatures must be annealed or numbers above 0, got 'warm'"),
        ({"temperatures": ("0",)}, "--temperatures"),
        ({"temperatures": ("1", "1.0")}, "--temperatures takes each value once"),
        ({"confidence": 1.5}, "--confidence"),
        ({"factor": 1.0}, "--factor"),
        ({"exits": (6, 4, 24)}, "--exits must be in increasing order"),
        ({"exits": (4, 30)}, "--exits must be layers from 1 to 24, got 30"),
        ({"losses": ("exit-wise",), "teachers": ("last", "later")}, "--teachers takes one value unless"),
        ({"images": (500,), "losses": ("semi-supervised",)}, "no image is unlabelled"),
        ({"batch": 20_000}, "--batch must be at most the number of training images (10,000), got 20,000"),
        ({"dtype": "float64"}, "--dtype must be float32"),
        ({"drops": (20, 10)}, "--drops must be in increasing order"),
    ],
)
def test_options_that_cannot_work_are_refused(options, words):
    with pytest.raises(UserError) as refused:
        MultiExitStudy(**options)
    assert words in str(refused.value)


def test_missing_data_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UserError, match=r"--data: .*download"):
        list(MultiExitStudy(data=str(tmp_path)).pieces())
