"""The study `teacher-aware`: what it trains, what it decides (T9), and what it reports."""

import dataclasses
import json

import numpy as np
import pytest

from support.commands import Said
from support.runs import made_run
from understudy._errors import UserError
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.papers.specialization.teacher_aware.study import TeacherAwareData

FULL = TeacherAwareData(seeds=3, samples=(150, 1_000, 3_000), polarity=(1.0,))


def aware_run(study, evaluation, training=1e-5, diverged=()):
    """A run with `evaluation(data, samples)` as the final loss of every seed; losses before training are 1."""
    parameters = [
        {"data": data, "samples": n, "polarity": p, "seed": s}
        for data in study.data
        for n in study.samples
        for s in range(1, study.seeds + 1)
        for p in study.polarity
    ]
    networks = [row | {"diverged_at": 5 if i in diverged else None} for i, row in enumerate(parameters)]
    final = [evaluation(row["data"], row["samples"]) for row in parameters]
    metrics = {"eval_loss": [(1.0, v) for v in final], "train_loss": [(1.0, training)] * len(final)}
    return made_run(networks, (0, 1), metrics)


def papers_losses(data, samples):
    if data == "aware":
        return {150: 0.006, 1_000: 2e-4, 3_000: 1e-4}[samples]
    near = {150: 0.1, 1_000: 10.0}.get(samples, 1.0) if data == "aware-near" else 1.0
    return {150: 0.049, 1_000: 3e-4, 3_000: 1e-4}[samples] * near


def small_ratio(data, samples):
    """The losses of the paper, but a ratio of less than 4 at 150 samples."""
    if samples == 150:
        return {"aware": 0.013, "agnostic": 0.05}.get(data, 0.04)
    return 2e-4 if data == "aware-near" else 1e-4


# Claim T9


def test_t9_holds_part_by_part():
    claims = FULL.claims(aware_run(FULL, papers_losses))
    parts = ["training loss", "evaluation loss", "gap closes", "moved 1 to 2"]
    assert [claim.part for claim in claims] == [f"{part}, p = 1" for part in parts]
    assert all(claim.holds and claim.id == "T9" for claim in claims)
    assert [claim.n for claim in claims] == [6, 3, 3, 3]
    assert claims[0].measured == "largest 0.00% (medians 0.00% teacher-aware, 0.00% teacher-agnostic)"
    assert claims[1].values == pytest.approx([np.log10(0.049 / 0.006)] * 3)
    assert claims[1].low == pytest.approx(np.log10(4))
    assert claims[1].measured == "8.2× (medians 0.006 against 0.049)"
    assert claims[1].paper == "0.006 against 0.049"
    assert (claims[2].low, claims[2].high) == (-0.05, 0.05)
    assert claims[3].measured == "150 samples: 1.00, 1 (all equal) above 0 (required: more than 2)"
    assert claims[3].values == pytest.approx([1.0] * 3)
    assert [(v.where, v.holds) for v in claims[3].variants] == [("1,000 samples", False), ("3,000 samples", False)]
    assert claims[3].variants[0].measured == "−1.00, 1 (all equal) below 0 (required: more than 2)"


@pytest.mark.parametrize(
    ("part", "training", "evaluation"),
    [
        (0, 0.02, papers_losses),
        (1, 1e-5, small_ratio),
        (2, 1e-5, lambda data, n: papers_losses(data, n) + (0.01 if n == 1_000 and data != "aware" else 0)),
        (3, 1e-5, lambda data, n: 0.06 if (data, n) == ("aware-near", 150) else papers_losses(data, n)),
    ],
)
def test_t9_fails_part_by_part(part, training, evaluation):
    claims = FULL.claims(aware_run(FULL, evaluation, training))
    assert [claim.holds for claim in claims] == [i != part for i in range(4)]


def test_t9_decides_only_the_parts_for_which_the_run_has_networks():
    def decided(**changed):
        study = dataclasses.replace(FULL, **changed)
        return [claim.part.split(",")[0] for claim in study.claims(aware_run(study, papers_losses))]

    assert decided(epochs=10) == []
    assert decided(polarity=(2.0,)) == []
    assert decided(data=("agnostic",)) == []
    assert decided(data=("aware", "agnostic"), samples=(150,)) == ["training loss", "evaluation loss"]
    assert decided(samples=(3_000,)) == []
    assert decided(moved=(3.0, 4.0)) == ["moved 1 to 2"]
    assert decided(moved_near=(3.0, 4.0)) == ["training loss", "evaluation loss", "gap closes"]


def test_points_moved_little_must_help_at_every_small_size():
    study = dataclasses.replace(FULL, samples=(50, 100, 150))
    for ratios, holds in (((0.1, 0.2, 0.5), True), ((0.1, 1.2, 0.5), False)):
        near = dict(zip(study.samples, ratios, strict=True))
        run = aware_run(study, lambda data, n, near=near: near[n] if data == "aware-near" else 1.0)
        (claim,) = [claim for claim in study.claims(run) if claim.part.startswith("moved")]
        assert (claim.holds, claim.n, len(claim.variants)) == (holds, 3, 0)


def test_networks_that_diverged_are_left_out():
    first_near = list(range(18, 21))
    claims = FULL.claims(aware_run(FULL, papers_losses, diverged=[0, *first_near]))
    assert [(claim.part.split(",")[0], claim.n) for claim in claims] == [
        ("training loss", 5),
        ("evaluation loss", 2),
        ("gap closes", 2),
    ]  # at 150 samples no network of aware-near is left


# Report


def test_the_page_shows_one_point_per_network_that_did_not_diverge():
    (figure,) = FULL.story(aware_run(FULL, papers_losses, diverged=[0])).figures
    points = [trace for trace in figure.kind.page()["data"] if trace["mode"] == "markers"]
    assert [network for trace in points for network, *_ in trace["customdata"]] == list(range(1, 27))
    assert points[1]["y"] == [0.049] * 3 + [3e-4] * 3 + [1e-4] * 3


def test_the_headline_counts_seeds():
    alone = dataclasses.replace(FULL, seeds=1)
    assert alone.story(aware_run(alone, papers_losses)).headline.endswith("; median of 1 seed.")
    assert FULL.story(aware_run(FULL, papers_losses)).headline == (
        "With 150 samples the evaluation loss is 0.006 with teacher-aware against 0.049 with teacher-agnostic data "
        "(p = 1); median of 3 seeds."
    )


def test_the_headline_without_teacher_aware_and_agnostic_data():
    near = dataclasses.replace(FULL, data=("aware-near",))
    story = near.story(aware_run(near, papers_losses))
    assert (
        story.headline == "No network was trained on 150 teacher-aware or teacher-agnostic samples without diverging."
    )
    assert [number.label for number in story.numbers] == ["networks"]


# Options and training


def test_the_study_is_registered():
    assert studies()["teacher-aware"] is TeacherAwareData


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": (8, 100)}, "--samples must be at least the batch size (16), got 8"),
        ({"samples": (50, 50)}, "--samples takes each value once, got 50 50"),
        ({"data": ("blind",)}, "--data must be one of aware, agnostic, aware-near, got blind"),
        ({"data": ()}, "--data needs at least one value"),
        ({"data": ("aware", "aware")}, "--data takes each value once, got aware aware"),
        ({"moved_near": (2.0, 1.0)}, "--moved-near must be two distances, the smaller first, got 2 1"),
        ({"moved": (-1.0, 1.0)}, "--moved must be at least 0, got -1"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(UserError) as error:
        TeacherAwareData(**options)
    assert str(error.value) == words


def test_the_experiment():
    made = TeacherAwareData(seeds=2).experiment()
    assert [g.data.train for g in made.groups] == [50, 100, 150, 300, 1_000, 3_000, 10_000] * 3
    assert len(made.parameters) == sum(len(g.students) for g in made.groups) == 84
    assert made.parameters[5] == {"data": "aware", "samples": 100, "polarity": 1.0, "seed": 1}
    assert [g.data.moved for g in made.groups if hasattr(g.data, "moved")] == [(10.0, 11.0)] * 7 + [(1.0, 2.0)] * 7


def test_the_quick_study_is_read_back_from_its_config():
    quick = TeacherAwareData.quick()
    assert TeacherAwareData.from_config(json.loads(json.dumps(quick.config()))) == quick
    assert TeacherAwareData().command() == "understudy run teacher-aware"


# From training to report


TINY = TeacherAwareData(seeds=2, samples=(20, 40), epochs=2, steps=20, dim=10, outputs=5, evaluation=100)


def test_from_training_to_report(tmp_path):
    run = execute(TINY, tmp_path, Said())
    story = TINY.story(run)
    assert story.headline.endswith(".")
    assert "nan" not in story.headline + "".join(n.value for n in story.numbers)
    assert 2 <= len(story.numbers) <= 4
    assert run.claims == []
    for figure in story.figures:
        assert (run.folder / "figures" / f"{figure.name}.pdf").exists()
    assert (run.folder / "report.html").stat().st_size > 10_000
    assert not (run.folder / "figures" / "hyperplanes.gif").exists()


def test_a_run_in_which_every_network_diverged(tmp_path):
    study = dataclasses.replace(TINY, lr=1e6)
    run = execute(study, tmp_path, Said())
    assert all(at is not None for at in run.column("diverged_at"))
    assert study.story(run).headline.startswith("All 24 networks diverged, the first at step ")
