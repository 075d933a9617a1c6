"""Certificates: the setting that is documented, what a wrong constant does, and the study on small settings."""

import sys
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest
import torch

import understudy as us
from understudy.errors import UserError
from understudy.lab.execute import execute
from understudy.papers.specialization.certificates.claims import (
    Verdicts,
    claims,
    every_node,
    least_samples,
    part,
    rule_errors,
    said,
)
from understudy.papers.specialization.certificates.story import story
from understudy.papers.specialization.certificates.study import AUGMENTED, WIDTHS, Certificates
from understudy.papers.specialization.certificates.triples import KINDS, perturbed_copy, triple
from understudy.papers.specialization.certificates.verdicts import CERTIFYING, region_variation, verdicts
from understudy.papers.specialization.certificates.verdicts import rule_errors as errors_of_rule
from understudy.theory.isolation import isolation
from understudy.training.parallel import one_thread_each

SPECIALIZATION = sys.modules["understudy.papers.specialization.theory.sampled"]
"""The module: the package has a function of that name."""


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors are small: threads that wait for each other are slow on cores that are shared."""
    with one_thread_each():
        yield


def setting(seed: int, samples: int) -> tuple[us.Population, us.Population, torch.Tensor]:
    """The documented setting: two nodes in the plane at right angles, four students, inputs N(0, I)."""
    teacher = us.teachers.crossing([seed], outputs=2, angle=90.0, dtype=torch.float64)
    x = us.data.Gaussian(2, 1.0, train=1, evaluation=samples).evaluating(seed, dtype=torch.float64)
    return teacher, perturbed_copy(teacher, 2, 1e-6, seed), x


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_documented_setting_certifies_every_teacher_node(seed):
    found = verdicts(*setting(seed, 50_000))
    for name in AUGMENTED:
        here = [verdict for verdict in found if verdict.result == name]
        assert [verdict.node for verdict in here] == [0, 1]
        assert all(verdict.certified for verdict in here)
    assert not any(verdict.contradicted for verdict in found)
    assert all(verdict.nearest < 1e-5 < verdict.eps for verdict in found if verdict.certified)


def test_few_samples_certify_nothing():
    assert not any(verdict.certified for verdict in verdicts(*setting(1, 1_000), AUGMENTED))


def test_what_is_guaranteed_falls_as_one_over_the_samples():
    few, many = (
        np.mean([v.eps for v in verdicts(*setting(1, samples), ("S0 theorem 4",))]) for samples in (50_000, 200_000)
    )
    assert 2.5 < few / many < 6.5


def outside(count: int) -> range:
    first = KINDS.index("outside")
    return range(first, first + count * len(KINDS), len(KINDS))


def contradicted(numbers: range) -> int:
    made = map(triple, numbers)
    return sum(v.contradicted for each in made for v in verdicts(each.teacher, each.student, each.x))


def test_a_constant_that_is_too_small_is_contradicted_by_students_just_outside(monkeypatch):
    numbers = outside(6)
    assert contradicted(numbers) == 0

    def too_sure(*args):
        found = isolation(*args)
        return found._replace(m1=found.m1 / 1000)

    monkeypatch.setattr(SPECIALIZATION, "isolation", too_sure)
    assert contradicted(numbers) >= 1


@pytest.mark.parametrize("number", range(len(KINDS)), ids=KINDS)
def test_no_kind_of_triple_contradicts_a_certificate(number):
    made = triple(number + 3 * len(KINDS))
    found = verdicts(made.teacher, made.student, made.x)
    assert found
    assert {verdict.result for verdict in found} <= set(CERTIFYING)
    assert not any(verdict.contradicted for verdict in found)
    assert all(np.isfinite(verdict.eps) == verdict.certified for verdict in found)


def test_the_rule_is_backpropagation_and_a_wrong_gradient_is_not(monkeypatch):
    teacher = us.teachers.separated((4, 3, 5, 2), seeds=[1], bias_spread=0.5, slope=0.2, dtype=torch.float64)
    student = us.students.like_linear(teacher, multiple=2)
    x = us.data.Gaussian(4, 1.5, train=50, evaluation=1).training(1, dtype=torch.float64)
    found = errors_of_rule(teacher, student, x)
    assert len(found) == 2
    assert max(found) < 1e-13
    assert region_variation(teacher, student, x) == [0.0, 0.0]
    module = sys.modules["understudy.papers.specialization.certificates.verdicts"]
    right = module.autograd_gradients
    monkeypatch.setattr(module, "autograd_gradients", lambda *three: tuple(g + 1e-6 for g in right(*three)))
    assert min(errors_of_rule(teacher, student, x)) > 1e-8


# The study

SMALL = Certificates(
    seeds=2,
    device="cpu",
    triples=len(KINDS),
    samples=(1_000, 50_000),
    students=2,
    near=(10.0,),
    epochs=12,
    train=200,
    certify=20_000,
    more=(3_000, 50_000),
    depths=(2, 3),
)


class Quiet:
    def start(self, folder, epoch, epochs): ...

    def epoch(self, progress): ...

    def say(self, what): ...


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SMALL, tmp_path_factory.mktemp("runs"), Quiet())


def test_every_part_has_its_networks(run):
    assert run.column("network").tolist() == list(range(run.networks.num_rows))
    counts = {name: len(part(run, name)) for name in ("triples", "setting", "training", "identities")}
    assert counts == {"triples": len(KINDS), "setting": 2, "training": 2, "identities": 8}
    assert run.networks["kind"].to_pylist()[: len(KINDS)] == list(KINDS)


def test_the_tables_are_what_the_theorems_said(run):
    network = int(part(run, "setting")[1])
    rows = run.nodes.filter((pc.field("network") == network) & (pc.field("samples") == 50_000))
    expected = verdicts(*setting(2, 50_000), AUGMENTED)
    assert rows["result"].to_pylist() == [v.result for v in expected]
    assert rows["eps"].to_pylist() == [v.eps for v in expected]
    assert rows["nearest"].to_pylist() == [v.nearest for v in expected]


def test_samples_certify_the_setting(run):
    found = said(run, "setting")
    for name in AUGMENTED:
        assert every_node(found, name) == {1_000: 0.0, 50_000: 1.0}
        assert least_samples(found, name) == 50_000


def test_students_are_looked_at_along_training_and_at_its_end(run):
    found = said(run, "training")
    assert sorted(set(found.epoch.tolist())) == SMALL.looks() == [0, 1, 2, 3, 5, 6, 7, 8, 9, 11, 12]
    assert sorted(set(found.samples[found.epoch == 12].tolist())) == [3_000, 20_000, 50_000]
    assert set(found.samples[found.epoch < 12].tolist()) == {20_000}
    assert np.median(found.nearest[found.epoch == 12]) < np.median(found.nearest[found.epoch == 0])


def test_the_fewest_samples_are_those_from_which_on_all_are_certified():
    samples = np.array([10, 10, 20, 20, 30, 30])
    certified = np.array([True, True, True, False, True, True])
    nothing = np.zeros(6)
    found = Verdicts(np.arange(6) % 2, nothing, samples, np.array(["t"] * 6), certified, nothing, nothing, nothing)
    assert every_node(found, "t") == {10: 1.0, 20: 0.5, 30: 1.0}
    assert least_samples(found, "t") == 30
    assert least_samples(found._replace(certified=certified & (samples < 30)), "t") is None


def test_claims_are_decided_on_runs_that_have_what_they_ask_for(run):
    assert claims(SMALL, run) == []


def test_a_small_run_as_if_it_had_the_settings(run, monkeypatch):
    monkeypatch.setattr("understudy.papers.specialization.certificates.claims.ENOUGH", 5)
    monkeypatch.setattr("understudy.papers.specialization.certificates.claims._DEPTHS", {2, 3})
    rule, constant, triples, every = claims(SMALL, run)
    assert [claim.id for claim in (rule, constant, triples, every)] == ["Y1", "Y2", "Y3", "Y3"]
    assert all(claim.holds for claim in (rule, constant, triples, every))
    assert rule.n == 8
    assert max(rule.values) == np.nanmax(rule_errors(run)) < 1e-12
    assert constant.measured == "0 of 12 layers of 8 networks"
    assert triples.measured.startswith("0 of ")
    assert [beside.where for beside in triples.variants] == [*KINDS, "the part setting", "the part training"]
    assert every.measured == "S0 theorem 3: from 50,000 samples; S0 theorem 4: from 50,000 samples"


@pytest.mark.parametrize("where", ["triples", "training"])
def test_one_contradicted_certificate_is_enough_to_fail(run, monkeypatch, where):
    monkeypatch.setattr("understudy.papers.specialization.certificates.claims.ENOUGH", 5)
    found = said(run, where)
    wrong = found.contradicted.copy()
    wrong[int(np.flatnonzero(found.certified)[0])] = True
    monkeypatch.setattr(
        "understudy.papers.specialization.certificates.claims.said",
        lambda of, name: found._replace(contradicted=wrong) if name == where else said(of, name),
    )
    triples, every = claims(SMALL, run)
    assert not triples.holds
    assert ("1 of " if where == "triples" else "elsewhere 1 of ") in triples.measured
    assert sum(not beside.holds for beside in triples.variants) == 1
    assert every.holds


def test_the_story_says_how_many_and_draws_all_four(run):
    told = story(SMALL, run)
    assert "none is contradicted" in told.headline
    assert told.headline.endswith("50,000 samples certify both nodes of a teacher in 2 seeds.")
    assert [figure.name for figure in told.figures] == ["samples", "training", "eps", "triples"]
    page = told.figures[3].kind.page()
    for trace in page["data"]:
        if trace["mode"] == "markers":
            assert all(y <= x for x, y in zip(trace["x"], trace["y"], strict=True))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"triples": 0}, "--triples: 0 was given"),
        ({"samples": ()}, "--samples: no value was given"),
        ({"more": (10, 10)}, "--more: 10 10 was given; name each value once"),
        ({"depths": (2, 7)}, f"--depths: 7 was given; allowed are 2 to {len(WIDTHS) + 1} layers"),
        ({"depths": (1,)}, "--depths: 1 was given"),
        ({"leaky": (1.0,)}, "--leaky: 1 was given; allowed are numbers from 0 and below 1"),
        ({"angle": 180.0}, "--angle: 180 was given"),
        ({"multiple": 0.5}, "--multiple: 0.5 was given; the setting's student has the teacher's nodes"),
        ({"near": (-1.0,)}, "--near: -1.0 was given"),
    ],
)
def test_options_that_cannot_be_are_refused_in_words(option, words):
    with pytest.raises(UserError) as error:
        Certificates(**option)
    assert words in str(error.value)
    assert replace(SMALL, triples=1).triples == 1
