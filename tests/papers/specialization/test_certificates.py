"""Certificates: the documented setting, the effect of a wrong constant, and the study on small settings."""

import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import understudy as us
from support.commands import Said
from support.runs import made_run, run_of
from understudy._errors import UserError
from understudy.lab.execute import execute
from understudy.papers.specialization.certificates.claims import (
    claims,
    every_node,
    layer_values,
    least_samples,
    read_verdicts,
)
from understudy.papers.specialization.certificates.story import story
from understudy.papers.specialization.certificates.study import AUGMENTED, Certificates
from understudy.papers.specialization.certificates.triples import KINDS, perturbed_copy, triple
from understudy.papers.specialization.certificates.verdicts import CERTIFYING, region_variation, rule_errors, verdicts
from understudy.store.units import read_units
from understudy.theory.isolation import isolation
from understudy.training.parallel import one_thread_each

SPECIALIZATION = sys.modules["understudy.papers.specialization.theory.sampled"]
"""The module; the package has a function of the same name."""


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: for small tensors, several threads are slow on shared cores."""
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
        assert [verdict.teacher for verdict in here] == [0, 1]
        assert all(verdict.certified for verdict in here)
    assert not any(verdict.contradicted for verdict in found)
    assert all(verdict.nearest < 1e-5 < verdict.eps for verdict in found if verdict.certified)


def test_few_samples_certify_nothing():
    assert not any(verdict.certified for verdict in verdicts(*setting(1, 1_000), AUGMENTED))


def test_the_guaranteed_distance_falls_as_one_over_the_samples():
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


def test_the_rule_agrees_with_backpropagation_and_not_with_a_wrong_gradient(monkeypatch):
    teacher = us.teachers.distinct_rows((4, 3, 5, 2), seeds=[1], bias_spread=0.5, slope=0.2, dtype=torch.float64)
    student = us.students.like_linear(teacher, multiple=2)
    x = us.data.Gaussian(4, 1.5, train=50, evaluation=1).training(1, dtype=torch.float64)
    found = rule_errors(teacher, student, x)
    assert len(found) == 2
    assert max(found) < 1e-13
    assert region_variation(teacher, student, x) == [0.0, 0.0]
    module = sys.modules["understudy.papers.specialization.certificates.verdicts"]
    right = module.autograd_gradients
    monkeypatch.setattr(module, "autograd_gradients", lambda *three: tuple(g + 1e-6 for g in right(*three)))
    assert min(rule_errors(teacher, student, x)) > 1e-8


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


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SMALL, tmp_path_factory.mktemp("runs"), Said())


def part(run, name):
    found = read_verdicts(run)
    return found[found["part"] == name]


def test_networks_and_triples_have_tables_of_their_own(run):
    assert run.column("network").tolist() == list(range(run.networks.num_rows))
    counts = {name: len(run.select(part=name)) for name in ("setting", "training", "identities")}
    assert counts == {"setting": 2, "training": 2, "identities": 8}
    assert run.networks.num_rows == 12
    triples = run.table("triples")
    assert triples["kind"].to_pylist() == list(KINDS)
    found = part(run, "triples")
    for column in ("certified", "contradicted"):
        assert triples[column].to_pylist() == found.groupby("seed")[column].sum().tolist()


def test_an_older_run_has_triples_among_its_networks(run):
    triples, found = run.table("triples").to_pylist(), read_verdicts(run)
    setting = {"part": "setting", "kind": None, "dim": None}
    networks = [{"part": "triples", "seed": row["seed"], "kind": row["kind"], "dim": row["dim"]} for row in triples]
    networks += [setting | {"seed": seed} for seed in SMALL.seed_names]
    counts = [row["certified"] for row in triples] + [np.nan] * SMALL.seeds
    nodes = found[found["part"] != "training"]
    number = np.where(nodes["part"] == "triples", nodes["seed"], len(triples) + nodes["seed"] - 1)
    new = made_run([row | {"near": np.nan} for row in networks], metrics={"certified": np.array(counts)[:, None]})
    rows = pa.table(nodes.drop(columns=["part", "seed", "kind", "near"]).assign(network=number))
    old = run_of({"networks": new.networks, "metrics": new.metrics, "nodes": rows}, (0,), {}, new.config)
    again = read_units(old, "triples", part="triples")
    for column in ("seed", "kind", "dim", "certified"):
        assert again[column].to_pylist() == [row[column] for row in triples]
    pd.testing.assert_frame_equal(read_verdicts(old)[nodes.columns], nodes.reset_index(drop=True))


def test_the_tables_contain_the_verdicts_of_the_theorems(run):
    found = part(run, "setting")
    rows = found[(found["seed"] == 2) & (found["samples"] == 50_000)]
    expected = verdicts(*setting(2, 50_000), AUGMENTED)
    assert rows["result"].tolist() == [v.result for v in expected]
    assert rows["eps"].tolist() == [v.eps for v in expected]
    assert rows["nearest"].tolist() == [v.nearest for v in expected]


def test_samples_certify_the_setting(run):
    found = part(run, "setting")
    for name in AUGMENTED:
        assert every_node(found, name).to_dict() == {1_000: 0.0, 50_000: 1.0}
        assert least_samples(found, name) == 50_000


def test_students_are_certified_during_training_and_at_its_end(run):
    found = part(run, "training")
    last, before = found[found["epoch"] == 12], found[found["epoch"] < 12]
    assert sorted(found["epoch"].unique()) == SMALL.probed_epochs() == [0, 1, 2, 3, 5, 6, 7, 8, 9, 11, 12]
    assert sorted(last["samples"].unique()) == [3_000, 20_000, 50_000]
    assert set(before["samples"]) == {20_000}
    assert last["nearest"].median() < found.loc[found["epoch"] == 0, "nearest"].median()


def test_the_least_samples_are_those_from_which_on_all_nodes_are_certified():
    certified = [True, True, True, False, True, True]
    found = pd.DataFrame(
        {"seed": [0, 1] * 3, "samples": [10, 10, 20, 20, 30, 30], "result": "t", "certified": certified}
    )
    assert every_node(found, "t").to_dict() == {10: 1.0, 20: 0.5, 30: 1.0}
    assert least_samples(found, "t") == 30
    assert least_samples(found.assign(certified=found["certified"] & (found["samples"] < 30)), "t") is None


def test_a_small_run_decides_nothing(run):
    assert claims(SMALL, run) == []


def test_claims_of_a_small_run_with_smaller_requirements(run, monkeypatch):
    monkeypatch.setattr("understudy.papers.specialization.certificates.claims.ENOUGH", 5)
    monkeypatch.setattr("understudy.papers.specialization.certificates.claims._DEPTHS", {2, 3})
    rule, constant, triples, every = claims(SMALL, run)
    assert [claim.id for claim in (rule, constant, triples, every)] == ["Y1", "Y2", "Y3", "Y3"]
    assert all(claim.holds for claim in (rule, constant, triples, every))
    assert rule.n == 8
    assert max(rule.values) == np.nanmax(layer_values(run, "rule")) < 1e-12
    assert constant.measured == "different in 0 of 12 layers of 8 networks"
    assert triples.measured.startswith("0 of ")
    assert [beside.where for beside in triples.variants] == [*KINDS, "the part setting", "the part training"]
    assert every.measured == "S0 theorem 3: from 50,000 samples; S0 theorem 4: from 50,000 samples"


@pytest.mark.parametrize("where", ["triples", "training"])
def test_one_contradicted_certificate_decides_against_y3(run, monkeypatch, where):
    monkeypatch.setattr("understudy.papers.specialization.certificates.claims.ENOUGH", 5)
    found = read_verdicts(run)
    first = found.index[found["certified"] & (found["part"] == where)][0]
    found.loc[first, "contradicted"] = True
    monkeypatch.setattr("understudy.papers.specialization.certificates.claims.read_verdicts", lambda run: found)
    triples, every = claims(SMALL, run)
    assert not triples.holds
    assert ("1 of " if where == "triples" else "elsewhere 1 of ") in triples.measured
    assert sum(not beside.holds for beside in triples.variants) == 1
    assert every.holds


def test_the_story_counts_certificates_and_has_four_figures(run):
    shown = story(SMALL, run)
    assert "none is contradicted" in shown.headline
    assert shown.headline.endswith("50,000 samples certify both nodes of a teacher in 2 seeds.")
    assert [figure.name for figure in shown.figures] == ["samples", "training", "eps", "triples"]
    page = shown.figures[3].kind.page()
    for trace in page["data"]:
        if trace["mode"] == "markers":
            assert all(y <= x for x, y in zip(trace["x"], trace["y"], strict=True))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"triples": 0}, "--triples must be at least 1, got 0"),
        ({"samples": ()}, "--samples needs at least one value"),
        ({"more": (10, 10)}, "--more takes each value once, got 10 10"),
        ({"depths": (2, 7)}, "--depths must be at least 2 and at most 6, got 7"),
        ({"depths": (1,)}, "--depths must be at least 2 and at most 6, got 1"),
        ({"leaky": (1.0,)}, "--leaky must be at least 0 and below 1, got 1"),
        ({"angle": 180.0}, "--angle must be above 0 and below 180, got 180"),
        ({"multiple": 0.5}, "--multiple must give students at least the teacher's 2 nodes: choose 1 or more, got 0.5"),
        ({"near": (-1.0,)}, "--near must be at least 0, got -1"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(UserError) as error:
        Certificates(**options)
    assert str(error.value).startswith(words)
