"""The study `split-normal`: its claims and its report on made runs, runs that are interrupted, and wrong options."""

import math

import numpy as np
import pytest
import torch

from support.code_runs import Interrupting, compute_run, made_codes, pages, same_runs
from support.commands import understudy
from understudy.measures.information import information_limit
from understudy.nets.latent.layers import mlp
from understudy.nets.latent.model import LatentModel
from understudy.papers.autoencoder.results import results
from understudy.papers.autoencoder.settings import BETA, CARRIED, MUTUAL
from understudy.papers.autoencoder.split_normal.claims import SHOWN, claims
from understudy.papers.autoencoder.split_normal.story import story
from understudy.papers.autoencoder.split_normal.study import CODES, SplitNormal
from understudy.papers.autoencoder.theory.normal import ENTROPY

TINY = SplitNormal(
    seeds=1,
    targets=(1.0,),
    penalties=(1.0,),
    methods=(MUTUAL, BETA),
    betas=(1.0,),
    steps=12,
    width=4,
    batch=16,
    samples=16,
    device="cpu",
)
SHORT = ["--seeds", "1", "--steps", "2", "--width", "2", "--batch", "16", "--samples", "16"]


def values(off=0.0, collapsed=0.01):
    """Final values of networks whose information is `off` their target; other methods have little."""

    def of(member):
        target = member.setting.target
        shift = off(member) if callable(off) else off
        information = collapsed if target is None else abs(target + shift)
        found = {"information": information, "bound": information - 0.01, "kl": 0.1, "gap": 0.02}
        return found | {"likelihood": -ENTROPY - 0.01, "elbo": -ENTROPY - 0.02}

    return of


def conditionals():
    return "conditionals", {"z": CODES, "mean": np.array(CODES) / 2, "std": np.full(len(CODES), 0.8)}


def made(study, diverged=lambda member: False, **how):
    return made_codes(study, values(**how), diverged=diverged, drawn=conditionals())


def decided(study, **how):
    return {claim.part: claim for claim in claims(study, made(study, **how))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return compute_run(TINY, tmp_path_factory.mktemp("whole"))


class TestClaims:
    @pytest.mark.parametrize(("off", "holds"), [(0.09, True), (0.11, False), (-0.09, True), (-0.11, False)])
    def test_a_tenth_of_a_nat_is_the_bound(self, off, holds):
        claim = decided(SplitNormal(), off=off)["splitting the normal"]
        assert (claim.holds, claim.n, len(claim.values)) == (holds, 3, 3 * len(SHOWN))

    def test_only_the_targets_of_the_figure_decide_at_the_usual_penalty(self):
        def off(member):
            return 0.0 if member.setting.strength in SHOWN and member.setting.penalty == 1 else 0.3

        claim = decided(SplitNormal(), off=off)["splitting the normal"]
        assert claim.holds
        assert {each.where: each.holds for each in claim.variants} == {
            "other M": False,
            "C = 0.2": False,
            "C = 5": False,
        }
        only = decided(SplitNormal(targets=SHOWN, penalties=(1.0,)))["splitting the normal"]
        assert only.holds and not only.variants

    def test_one_seed_that_is_off_or_diverged_is_enough(self):
        def one(member):
            return (member.setting.target, member.setting.penalty, member.seed) == (1.2, 1.0, 2)

        assert not decided(SplitNormal(), off=lambda member: 0.2 * one(member))["splitting the normal"].holds
        found = decided(SplitNormal(), diverged=one)
        assert not found["splitting the normal"].holds
        assert found["collapse on the normal"].holds

    @pytest.mark.parametrize(("collapsed", "holds"), [(0.09, True), (0.11, False)])
    def test_a_plain_autoencoder_must_collapse(self, collapsed, holds):
        claim = decided(SplitNormal(), collapsed=collapsed)["collapse on the normal"]
        assert claim.holds is holds
        assert len(claim.values) == 6  # M = 0 counts, too

    @pytest.mark.parametrize("options", [{"methods": (MUTUAL,)}, {"betas": (0.5,)}])
    def test_without_a_plain_autoencoder_its_collapse_is_not_decided(self, options):
        assert list(decided(SplitNormal(**options))) == ["splitting the normal"]

    @pytest.mark.parametrize(
        "options",
        [
            {"seeds": 2},
            {"steps": 5_999},
            {"penalties": (0.2, 1.0)},
            {"targets": (0.0, 0.6, 1.2)},
            {"methods": (BETA,)},
            {"first_seed": 101},
        ],
    )
    def test_other_settings_decide_nothing(self, options):
        assert not decided(SplitNormal(**options))


class TestStory:
    def test_it_shows_the_figure_of_the_thesis_and_what_was_reached(self):
        study = SplitNormal()
        told = story(study, made(study, off=0.03))
        assert told.headline.startswith(
            "Asked for M = 0 to 2.5 nats, mutual autoencoders have that information within 0.03 nats; a plain "
            "variational autoencoder has at most 0.01. 3 seeds, 6,000 steps."
        )
        names = ["densities", "targets", "remedies", "reached", "training"]
        assert list(pages(told)) == names
        assert [figure.source for figure in told.figures][:2] == ["S3 fig. 4.3a", "S3 fig. 4.3a"]
        slider = pages(told)["densities"]["layout"]["sliders"][0]["steps"]
        assert [step["label"] for step in slider] == [f"M = {target:g}" for target in study.targets]

    def test_densities_are_those_of_the_codes(self):
        study = SplitNormal(targets=(1.0,), methods=(MUTUAL,), penalties=(1.0,))
        areas = story(study, made(study)).figures[0].kind
        at, code = np.searchsorted(areas.x, 0.0), CODES[0]
        normal = math.exp(-(code**2) / 2) / math.sqrt(2 * math.pi)
        density = math.exp(-((code / 2 / 0.8) ** 2) / 2) / (0.8 * math.sqrt(2 * math.pi))
        assert areas.x[at] == pytest.approx(0, abs=1e-12)
        assert areas.values[0, 0, at] == pytest.approx(normal * density)

    def test_networks_that_diverged_are_counted_and_left_out(self):
        study = SplitNormal()
        told = story(study, made(study, diverged=lambda member: member.seed == 1))
        assert [n.value for n in told.numbers if n.label == "diverged"] == ["34 of 102"]
        assert "within 0.00 nats" in told.headline
        assert "densities" not in pages(told)  # those of the first seed only are computed

    def test_a_run_whose_networks_all_diverged_says_so(self):
        study = SplitNormal(seeds=1)
        told = story(study, made(study, diverged=lambda member: True))
        assert told.headline == "All networks diverged; lower --rate."
        assert list(pages(told)) == ["targets", "remedies", "reached", "training"]
        for figure in told.figures:
            figure.kind.paper()

    def test_methods_that_were_not_trained_are_not_shown(self):
        mutual = SplitNormal(seeds=1, methods=(MUTUAL,))
        assert list(pages(story(mutual, made(mutual)))) == ["densities", "targets", "training"]
        assert "variational autoencoder" not in story(mutual, made(mutual)).headline
        other = SplitNormal(seeds=1, methods=(BETA,), betas=(0.5,))
        told = story(other, made(other))
        assert list(pages(told)) == ["remedies", "reached", "training"]
        assert told.headline == "1 network trained on standard normal data."

    def test_the_table_has_a_row_for_each_setting(self):
        study = SplitNormal(targets=(0.0, 1.0), penalties=(1.0,))
        lost = made(study, off=0.05, diverged=lambda member: member.setting.target == 0)
        zero, one, *others = study.table(lost).to_pylist()
        assert (one["setting"], one["networks"]) == ("M = 1, C = 1", 3)
        assert (one["information"], one["off target"]) == pytest.approx((1.05, 0.05))
        assert (zero["networks"], zero["information"]) == (0, None)
        assert len(others) == 1 + 3 + 3


class TestRuns:
    def test_an_interrupted_run_ends_with_equal_tables_and_networks(self, whole, tmp_path):
        for words in ("training: step 1 of", "2 of 3"):
            with pytest.raises(KeyboardInterrupt):
                compute_run(TINY, tmp_path, Interrupting(words))
        assert same_runs(compute_run(TINY, tmp_path), whole)

    def test_networks_have_the_same_bits_in_smaller_groups_and_in_a_smaller_study(self, whole, tmp_path):
        apart = compute_run(SplitNormal(**(TINY.options() | {"together": 1})), tmp_path / "apart")
        assert same_runs(apart, whole)
        few = SplitNormal(**(TINY.options() | {"methods": (BETA,)}))
        alone = compute_run(few, tmp_path / "alone")
        (file,) = (alone.folder / "models").iterdir()
        assert file.read_bytes() == (whole.folder / "models" / file.name).read_bytes()
        assert results(alone).iloc[0].drop("network").equals(results(whole).iloc[1].drop("network"))

    def test_a_network_that_diverged_has_no_file_and_no_exact_values(self, tmp_path, monkeypatch):
        draw = SplitNormal.draw
        monkeypatch.setattr(
            SplitNormal,
            "draw",
            lambda self, seed, *at: draw(self, seed, *at) * (math.inf if seed == 2 and at[0] else 1),
        )
        run = compute_run(SplitNormal(**(TINY.options() | {"methods": (MUTUAL,), "seeds": 2})), tmp_path)
        networks = run.networks.to_pylist()
        assert [each["diverged_at"] for each in networks] == [None, 2]
        assert [each["model"] for each in networks] == ["models/mutual-1-c1-seed1.safetensors", ""]
        assert [each.name for each in (run.folder / "models").iterdir()] == ["mutual-1-c1-seed1.safetensors"]
        assert np.isfinite(results(run)["kl"]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--targets", "-0.5"], "--targets must be at least 0, got -0.5"),
        (
            ["--targets", "0", "18.5"],
            "--targets must be at most 18.343 nats, what a code of 1 coordinate in float32 can carry, got 18.5",
        ),
        (["--targets", "nan"], "--targets must be at least 0, got nan"),
        (["--penalties", "0"], "--penalties must be above 0, got 0"),
        (["--penalties", "1", "-1"], "--penalties must be above 0, got -1"),
        (["--free-bits", "0"], "--free-bits must be above 0, got 0"),
        (["--warm-ups", "1.5"], "--warm-ups must be above 0 and at most 1, got 1.5"),
        (["--betas", "-0.5"], "--betas must be at least 0, got -0.5"),
        (["--samples", "1"], "--samples must be at least 2, got 1"),
        (["--dtype", "tf32"], "--dtype must be float32, got tf32: split-normal trains in float32 only"),
    ],
)
def test_wrong_options_are_refused_in_one_line(tmp_path, words, error):
    refused = understudy("run", "split-normal", *SHORT, *words, cwd=tmp_path, status=2)
    assert refused.stderr == f"understudy: {error}\n"
    assert refused.stdout == ""
    assert not list(tmp_path.iterdir())


def test_a_coordinate_carries_what_the_limit_states():
    model = LatentModel(mlp(1, 2), mlp(1, 2))
    limit = information_limit(model, model.prepare(torch.zeros(4, 1))).nats
    assert 0 <= limit - CARRIED < 1e-3
