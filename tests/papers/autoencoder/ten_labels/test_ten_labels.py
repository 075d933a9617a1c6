"""The study `ten-labels`: its claims and its report on made runs, runs that are interrupted, and wrong options."""

import math
from dataclasses import replace

import numpy as np
import pytest

from support.code_runs import Interrupting, compute_run, made_codes, pages, same_runs
from support.commands import understudy
from understudy.papers.autoencoder.results import results
from understudy.papers.autoencoder.settings import BETA, MUTUAL, SCATTERED
from understudy.papers.autoencoder.ten_labels.claims import SHOWN, claims
from understudy.papers.autoencoder.ten_labels.story import story
from understudy.papers.autoencoder.ten_labels.study import TenLabels

WHOLE = math.log(10)
TINY = TenLabels(
    seeds=1,
    labels=3,
    targets=(0.0, 1.0),
    penalties=(1.0,),
    methods=(MUTUAL, BETA),
    starts=(SCATTERED,),
    betas=(1.0,),
    resamples=2,
    steps=12,
    width=4,
    batch=48,
    samples=16,
    estimates=3,
    device="cpu",
)
SHORT = ["--seeds", "1", "--steps", "2", "--width", "2", "--batch", "10", "--samples", "2", "--estimates", "2"]
Z = np.linspace(-4, 4, 9)


def values(changes=None):
    """Final values as the thesis has them, with changes as a function of the member."""

    def of(member):
        target, several = member.setting.target, member.setting.resamples > 1
        information = 0.01 if target is None else target
        found = {"information": information, "bound": information - 0.01, "likelihood": -WHOLE, "elbo": -WHOLE - 0.3}
        found |= {"gap": 0.3, "aggregate": 0.1, "kl": information + 0.1, "error": 1e-9}
        found |= {"posterior_kl": 0.005 if several else 0.1, "posterior_entropy": 0.1 if several else 0.4}
        near = target is not None and target > 1
        for name, variance in (("no baseline", 0.1 if near else 0.23), ("baseline", 0.2 if near else 0.08)):
            found |= {f"variance, {name}": variance, f"distance, {name}": 1.0, f"relative distance, {name}": 0.01}
        return found | {"variance, best constant": 0.05} | (changes(member) if changes else {})

    return of


def densities(labels):
    at, label = np.indices((len(Z), labels)).reshape(2, -1)
    place = np.linspace(-1.5, 1.5, labels)[label]
    weight = np.exp(-((Z[at] - place) ** 2))
    share = weight / np.bincount(at, weight)[at]
    return "densities", {"z": Z[at], "label": label, "probability": share, "posterior": weight, "encoder": weight}


def made(study, changes=None, diverged=lambda member: False):
    return made_codes(study, values(changes), diverged=diverged, drawn=densities(study.labels))


def decided(study, **how):
    return {claim.part: claim for claim in claims(study, made(study, **how))}


class TestClaims:
    def test_values_as_in_the_thesis_hold(self):
        found = decided(TenLabels())
        encoders = [f"encoder, C = {c}" for c in ("1", "0.2", "5")]
        estimators = ["REINFORCE, no baseline", "REINFORCE, baseline", "baseline, M = 0.5", "baseline, M = log 10"]
        names = ["ten labels", "collapse on ten labels", *encoders, "posterior", "gap", *estimators]
        assert list(found) == names
        assert all(claim.holds for claim in found.values())
        assert [each.where for each in found["ten labels"].variants] == ["M = log 10", "C = 0.2", "C = 5"]
        assert [each.where for each in found["posterior"].variants] == ["C = 0.2", "C = 5", "scattered start"]
        assert found["REINFORCE, baseline"].n == 10

    @pytest.mark.parametrize(
        ("part", "metric", "value", "holds"),
        [
            ("ten labels", "information", 1.11, False),
            ("ten labels", "information", 1.09, True),
            ("gap", "aggregate", 1e-9, False),
            ("gap", "aggregate", 2e-9, True),
            ("REINFORCE, no baseline", "distance, no baseline", 4.1, True),
        ],
    )
    def test_one_network_at_one_nat(self, part, metric, value, holds):
        def change(member):
            setting = member.setting
            one = (setting.target, setting.penalty, member.seed) == (1.0, 1.0, 3)
            return {metric: value} if one else {}

        assert decided(TenLabels(), changes=change)[part].holds is holds

    @pytest.mark.parametrize(("posterior_kl", "holds"), [(0.099, True), (0.101, False)])
    def test_resampling_must_be_nearer_in_every_seed_of_a_penalty(self, posterior_kl, holds):
        def change(member):
            one = (member.setting.penalty, member.setting.resamples, member.seed) == (5.0, 5, 4)
            return {"posterior_kl": posterior_kl} if one else {}

        found = decided(TenLabels(), changes=change)
        assert found["encoder, C = 5"].holds is holds
        assert found["encoder, C = 1"].holds

    @pytest.mark.parametrize(("seeds", "holds"), [(1, True), (2, False)])
    def test_nine_in_ten_posteriors_must_be_sharper(self, seeds, holds):
        def change(member):
            usual = (member.setting.penalty, member.setting.resamples, member.setting.start) == (1.0, 5, "prior")
            return {"posterior_entropy": 0.5} if usual and member.seed <= seeds else {}

        claim = decided(TenLabels(), changes=change)["posterior"]
        assert claim.holds is holds
        assert all(each.holds for each in claim.variants)

    def test_networks_near_independence_or_with_resampling_need_no_gap(self):
        def change(member):
            return {"aggregate": -1e-12} if member.setting.resamples > 1 else {"kl": 0.04, "aggregate": 0.0}

        assert "gap" not in decided(TenLabels(), changes=change)
        free = decided(TenLabels(), changes=lambda m: {"aggregate": 0.0} if m.setting.resamples > 1 else {})
        assert free["gap"].holds

    def test_estimators_are_decided_at_a_half_and_at_the_whole_entropy(self):
        """The order of the targets does not matter, nor that a smaller one was trained, too."""
        study = TenLabels(targets=(WHOLE, 0.25, *SHOWN[::-1]))
        found = decided(study)
        assert found["baseline, M = 0.5"].holds and found["baseline, M = log 10"].holds
        assert study.ends == (0.5, WHOLE)
        far = decided(study, changes=lambda m: {"distance, baseline": 4.1 if m.setting.target == 0.5 else 1.0})
        assert not far["REINFORCE, baseline"].holds
        assert far["REINFORCE, no baseline"].holds

    def test_a_diverged_network_decides_against_what_is_claimed_of_every_seed(self):
        def lost(member):
            return member.seed == 2 and member.setting.strength in (0.5, WHOLE)

        found = decided(TenLabels(), diverged=lost)
        failing = {part for part, claim in found.items() if not claim.holds}
        assert failing == set(found) - {"collapse on ten labels", "posterior", "gap"}

    def test_without_a_plain_autoencoder_its_collapse_is_not_decided(self):
        assert "collapse on ten labels" not in decided(TenLabels(methods=(MUTUAL,)))

    @pytest.mark.parametrize(
        "options",
        [
            {"seeds": 9},
            {"resamples": 1},
            {"penalties": (5.0, 1.0)},
            {"starts": (SCATTERED,)},
            {"targets": (0.0, 0.5, 1.0, 1.5, 2.0)},
            {"labels": 8, "batch": 160, "targets": (0.0, 0.5, 1.0, 1.5, 2.0, math.log(8))},
            {"steps": 1_999},
        ],
    )
    def test_other_settings_decide_nothing(self, options):
        assert not decided(TenLabels(**options))


class TestStory:
    def test_it_shows_the_figures_of_the_thesis(self):
        told = story(TenLabels(), made(TenLabels()))
        assert told.headline == (
            "Below the entropy of the labels, mutual autoencoders have the information they are asked for within 0.00 "
            "nats; at M = 2.303 a resampling encoder is 0.005 nats from the posterior, a Gaussian one 0.1. 10 seeds, "
            "2,000 steps."
        )
        names = ["patches", "encoders", "comparison", "gap", "targets", "remedies", "reached", "estimators", "training"]
        assert list(pages(told)) == names

    def test_labels_are_in_the_order_of_their_codes(self):
        study = TenLabels(seeds=1, targets=(1.0,), penalties=(1.0,), methods=(MUTUAL,))
        name, rows = densities(10)
        shuffled = rows | {"label": (7 * rows["label"]) % 10}
        for drawn in (rows, shuffled):
            patches = story(study, made_codes(study, values(), drawn=(name, drawn))).figures[0].kind
            at = np.argmax(patches.values[0], axis=1)
            assert (np.diff(at) >= 0).all() and at[0] < at[-1]
            np.testing.assert_allclose(patches.values[0].sum(0), 1)

    @pytest.mark.parametrize(
        ("options", "absent"),
        [
            ({"resamples": 1}, {"encoders", "comparison"}),
            ({"methods": (BETA,)}, {"patches", "encoders", "comparison", "targets", "estimators"}),
            ({"methods": (MUTUAL,)}, {"remedies", "reached"}),
            ({"targets": (0.0,)}, set()),
        ],
    )
    def test_what_was_not_trained_is_not_shown(self, options, absent):
        study = TenLabels(seeds=1, **options)
        drawn = pages(story(study, made(study)))
        every = ["patches", "encoders", "comparison", "gap", "targets", "remedies", "reached", "estimators", "training"]
        assert list(drawn) == [name for name in every if name not in absent]

    def test_some_networks_may_diverge(self):
        study = TenLabels(seeds=2)
        told = story(study, made(study, diverged=lambda member: member.setting.target == WHOLE))
        assert "encoders" not in pages(told)
        assert told.headline.endswith("within 0.00 nats. 2 seeds, 2,000 steps.")
        assert [n.value for n in told.numbers if n.label == "diverged"] == ["16 of 60"]

    def test_a_run_whose_networks_all_diverged_says_so(self):
        study = TenLabels(seeds=1)
        told = story(study, made(study, diverged=lambda member: True))
        assert told.headline == "All networks diverged; lower --rate or --table-rate."
        assert list(pages(told)) == ["comparison", "gap", "targets", "remedies", "reached", "training"]
        for figure in told.figures[:2]:
            figure.kind.paper()


class TestRuns:
    def test_an_interrupted_run_ends_with_equal_tables_and_networks(self, whole, tmp_path):
        for words in ("training: step 1 of", "2 of 5"):
            with pytest.raises(KeyboardInterrupt):
                compute_run(TINY, tmp_path, Interrupting(words))
        assert same_runs(compute_run(TINY, tmp_path), whole)

    def test_networks_have_the_same_bits_in_smaller_groups(self, whole, tmp_path):
        assert same_runs(compute_run(replace(TINY, together=1), tmp_path), whole)

    def test_it_has_exact_values_and_compares_estimators_at_both_ends(self, whole):
        found = results(whole).set_index("setting")
        assert found[["information", "gap", "aggregate", "posterior_kl"]].notna().all(axis=None)
        assert (found["gap"] >= found["aggregate"]).all()  # theorem 4.2: what no decoder removes
        assert (found["bound"] <= found["information"]).all()  # theorem 4.1
        distance = found["distance, baseline"].dropna()
        assert list(distance.index) == ["M = 1, C = 1, scattered start"]
        assert (found["diverged_at"].isna()).all()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return compute_run(TINY, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--targets", "-1"], "--targets must be at least 0, got -1"),
        (
            ["--targets", "0", "2.5"],
            "--targets must be at most log 10 = 2.302585093 nats, the entropy of 10 equally likely labels, got 2.5",
        ),
        (["--penalties", "0"], "--penalties must be above 0, got 0"),
        (["--resamples", "0"], "--resamples must be at least 1, got 0"),
        (["--labels", "1"], "--labels must be at least 2, got 1"),
        (
            ["--batch", "15"],
            "--batch must be a multiple of the number of labels (10), so that each is in it equally often, got 15; "
            "try 20",
        ),
        (["--table-rate", "0"], "--table-rate must be above 0"),
    ],
)
def test_wrong_options_are_refused_in_one_line(tmp_path, words, error):
    refused = understudy("run", "ten-labels", *SHORT, *words, cwd=tmp_path, status=2)
    assert refused.stderr.startswith(f"understudy: {error}")
    assert refused.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
