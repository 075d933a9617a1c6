"""The contract that every registered result satisfies, and the checks that combine them."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import understudy as us
from support.pairs import gaussian, near_copy, random_network
from understudy._errors import UserError
from understudy.nets import Layer, Population
from understudy.theory import Finding, Known, Result, check, results
from understudy.theory.check import NodeCheck
from understudy.theory.result import INFORMATIVE, UNRIVALLED, Hypothesis

pytestmark = pytest.mark.usefixtures("one_thread")
every_result = pytest.mark.parametrize("result", results(), ids=[result.name for result in results()])
WITHOUT_NORM = [result for result in results() if result.networks != "BatchNorm"]


def pair(result: Result, slope: float = 0.0) -> tuple[Population, Population]:
    """A small teacher and student that a result is stated for."""
    if result.networks == "two layers":
        teacher = random_network(1, 3, 2, 2, slope=slope)
        return teacher, near_copy(teacher, 2, 1e-3)
    if result.networks == "one output":
        return bare(random_network(1, 3, 2, 1, slope=-1.0)), bare(random_network(2, 3, 4, 1, slope=-1.0))
    if result.networks == "deep":
        return random_network(1, 3, 2, 2, 2, slope=slope), random_network(2, 3, 4, 3, 2, slope=slope)
    if result.networks == "linear":
        return bare(random_network(1, 3, 2, 1, slope=1.0)), bare(random_network(2, 3, 4, 1, slope=1.0))
    if result.networks == "classifier":
        return bare(random_network(1, 3, 2, 1)), bare(random_network(2, 3, 4, 1))
    teacher = random_network(1, 3, 2, 2, slope=slope)
    if result.networks == "BatchNorm":
        return teacher, us.students.like_linear(teacher, multiple=2, norm="before")
    return teacher, random_network(2, 3, 4, 2, slope=slope)


def bare(network: Population) -> Population:
    """The network with zero biases and nonnegative output weights."""
    lower, upper = network.layers
    return replace(network, layers=(Layer(lower.weight, 0 * lower.bias), Layer(upper.weight.abs(), 0 * upper.bias)))


def data(samples: int = 400) -> Tensor:
    return 1.5 * gaussian(3, samples, 3)


def given(result: Result) -> Known:
    """What a result uses beside two networks and inputs."""
    return Known(labels=data()[:, 0] > 0) if result.networks == "classifier" else Known()


def permuted(student: Population, order: Sequence[int]) -> Population:
    """The student with the nodes of its lowest layer in another order."""
    (w, b), (v, c), *rest = student.layers
    return replace(student, layers=(Layer(w[:, order], b[:, order]), Layer(v[:, :, order], c), *rest))


def comparable(finding: Finding) -> tuple[object, ...]:
    """The part of a finding that does not depend on the numbering of nodes."""
    eps = None if finding.eps is None else f"{finding.eps:.6g}"
    return finding.result, finding.applies, finding.agrees, eps, [(h.name, h.holds) for h in finding.hypotheses]


def test_there_are_results_of_every_kind():
    assert len(results()) >= 17
    assert {"identity", "teacher node", "student node", "dynamics"} <= {result.subject for result in results()}
    assert {result.networks for result in results()} == {
        "any",
        "two layers",
        "one output",
        "deep",
        "BatchNorm",
        "linear",
        "classifier",
    }


@every_result
def test_it_has_a_name_a_title_and_a_statement(result):
    paper, kind, number = result.name.split()
    assert paper in ("S0", "S1", "S2", "S3", "S4")
    assert kind in ("theorem", "lemma", "corollary")
    assert re.fullmatch(r"([BCD]\.)?\d+(\.\d+)?", number)
    assert result.title
    assert len(result.statement.split()) > 8
    assert len(result.measured.split()) > 5


@every_result
def test_it_returns_findings_for_networks_it_is_stated_for(result):
    teacher, student = pair(result)
    findings = result(teacher, student, data(), given(result))
    assert findings
    for finding in findings:
        assert finding.result == result.name
        assert finding.about
        assert finding.conclusion
        assert finding.measured
        assert finding.agrees in (True, False, None)
        assert not finding.contradicted
        assert finding.eps is None or finding.applies
        for hypothesis in finding.hypotheses:
            assert hypothesis.name
            assert hypothesis.value
            assert hypothesis.requirement
            assert hypothesis.factor > 0
            assert isinstance(hypothesis.holds, bool)


@every_result
def test_failing_hypotheses_suggest_a_change(result):
    teacher, student = pair(result)
    few = Known(labels=data(12)[:, 0] > 0) if result.networks == "classifier" else Known()
    for finding in result(teacher, student, data(12), few):
        assert all(hypothesis.change for hypothesis in finding.failing)


@every_result
def test_other_networks_are_refused_with_a_reason(result):
    teacher, student = pair(result)
    deeper, normed = random_network(1, 3, 2, 2, 2), us.students.like_linear(teacher, norm="before")
    others = {
        "any": normed,
        "two layers": deeper,
        "one output": random_network(1, 3, 2, 1, slope=-1.0),
        "deep": random_network(1, 3, 2, 2),
        "BatchNorm": random_network(2, 3, 4, 2),
        "linear": random_network(2, 3, 4, 1, slope=1.0),
        "classifier": random_network(2, 3, 4, 1),
    }
    assert result.why_inapplicable(teacher, student, given(result)) == ""
    with pytest.raises(UserError, match=f"{result.name} does not apply: it is stated for"):
        result(teacher, others[result.networks], data(), given(result))


@every_result
def test_float32_and_float64_give_the_same_verdicts(result):
    teacher, student = (network.to(dtype=torch.float32) for network in pair(result))
    x = data().float()
    wide = result(teacher.to(dtype=torch.float64), student.to(dtype=torch.float64), x.double(), given(result))
    assert result(teacher, student, x, given(result)) == wide


@pytest.mark.parametrize("result", WITHOUT_NORM, ids=[result.name for result in WITHOUT_NORM])
def test_students_in_another_order_change_nothing_but_names(result):
    teacher, student = pair(result)
    order = [2, 0, 3, 1]
    before = {finding.about: finding for finding in result(teacher, student, data(), given(result))}
    after = {finding.about: finding for finding in result(teacher, permuted(student, order), data(), given(result))}
    renamed = {
        (f"student node {order[int(about.split()[-1])]}" if about.startswith("student node") else about): finding
        for about, finding in after.items()
    }
    assert {about: comparable(finding) for about, finding in renamed.items()} == {
        about: comparable(finding) for about, finding in before.items()
    }


@pytest.mark.parametrize("result", WITHOUT_NORM, ids=[result.name for result in WITHOUT_NORM])
def test_constants_that_overflow_certify_nothing(result):
    teacher, student = (
        replace(network, layers=tuple(Layer(*(1e200 * part for part in layer)) for layer in network.layers))
        for network in pair(result)
    )
    assert all(finding.eps is None for finding in result(teacher, student, data(), given(result)))
    with pytest.raises(UserError, match=r"beyond 10⁶⁰, .* overflow: scale"):
        check(teacher, student, data())


def test_only_identities_apply_to_absolute_values():
    teacher, student = random_network(1, 3, 2, 2, slope=-1.0), random_network(2, 3, 4, 2, slope=-1.0)
    found = check(teacher, student, data())
    assert {finding.result for finding in found.identities} == {"S0 lemma 1", "S0 corollary 2", "S1 theorem 1"}
    assert not found.students
    assert not found.dynamics
    silent = dict(found.silent)
    assert set(silent) == {result.name for result in results()} - {finding.result for finding in found.identities}
    assert silent["S4 theorem 2"] == "it is stated for one output, and the teacher has 2"
    assert silent["S0 theorem 4"].endswith("(slopes from 0 up to 1), and the slopes below zero are −1 and −1")
    assert found.certified == 0
    assert {node.verdict for node in found.nodes} == {"not certified: no theorem is stated for such networks"}


def lacking(*names: str) -> NodeCheck:
    """A node for which one theorem fails in these hypotheses, each by ten times as much as the one before."""
    failing = tuple(Hypothesis(name, "much", "little", False, "more", 10.0 ** (i + 1)) for i, name in enumerate(names))
    finding = Finding("S0 theorem 4", "teacher node 0", failing, "", "", False, samples=7e5)
    return NodeCheck(0, (finding,), None, None, True)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("samples", "gradient", INFORMATIVE, UNRIVALLED), "gradient fails by 100×"),
        (("gradient", UNRIVALLED), "gradient fails by 10×"),
        ((INFORMATIVE, UNRIVALLED), f"{INFORMATIVE} fails by 10×"),
        ((UNRIVALLED,), f"{UNRIVALLED} fails by 10×"),
    ],
)
def test_samples_and_gradient_are_reported_before_their_consequences(names, expected):
    assert lacking(*names).verdict.startswith(f"not certified: {expected} ")


def test_rivals_of_an_uninformative_guarantee_do_not_count():
    near, far = (
        lacking("gradient", INFORMATIVE, UNRIVALLED).findings[0],
        lacking("samples", "gradient", INFORMATIVE).findings[0],
    )
    node = NodeCheck(0, (replace(far, result="S0 theorem 3", samples=None), near), None, None, True)
    assert node.closest is not None
    assert node.closest[1] == "S0 theorem 4"
    assert node.samples == 7e5


def test_an_untrained_student_lacks_a_small_gradient_or_samples():
    found = check(random_network(1, 3, 2, 2), random_network(2, 3, 8, 2), data())
    names = {h.name for node in found.nodes for finding in node.findings for h in finding.hypotheses}
    assert {INFORMATIVE, UNRIVALLED} <= names
    assert all(node.closest and node.closest[0].name not in (INFORMATIVE, UNRIVALLED) for node in found.nodes)


def test_a_contradicted_certificate_is_reported_and_certifies_nothing():
    against = Finding("S0 theorem 4", "teacher node 0", (), "", "", False, eps=0.1)
    node = NodeCheck(0, (against,), None, None, True)
    assert node.certificate is None
    assert node.closest is None
    assert node.verdict == "not certified: the measurement contradicts S0 theorem 4"


@pytest.mark.parametrize(
    ("teacher", "student", "x", "message"),
    [
        ((3, 2, 2), (4, 4, 2), (9, 3), "teacher and student must have the same number of inputs, got 3 and 4"),
        ((3, 2, 2), (3, 4, 1), (9, 3), "teacher and student must have the same number of outputs, got 2 and 1"),
        ((3, 2, 2), (3, 4, 2), (0, 3), r"inputs must have shape \[sample, 3\] with at least one sample, got \[0, 3\]"),
        ((3, 2, 2), (3, 4, 2), (9, 4), "the networks take 3 inputs, and the data has 4 per sample"),
    ],
    ids=["inputs", "outputs", "no data", "data"],
)
def test_networks_and_data_that_do_not_match_are_refused(teacher, student, x, message):
    with pytest.raises(UserError, match=message):
        check(random_network(1, *teacher), random_network(2, *student), gaussian(1, *x))


def test_every_result_is_listed_for_networks_without_a_hidden_layer():
    found = check(random_network(1, 3, 2), random_network(2, 3, 4, 2), gaussian(1, 9, 3))
    assert {name for name, _ in found.silent} == {result.name for result in results()}
    assert all(why for _, why in found.silent)
    assert found.headline == f"0 of {len(results())} results apply, none of them to teacher nodes: " + (
        "the teacher has no hidden layer."
    )


def test_numbers_that_are_not_finite_are_refused():
    teacher, student, x = random_network(1, 3, 2, 2), random_network(2, 3, 4, 2), data()
    x[0, 0] = torch.nan
    with pytest.raises(UserError, match="the data has numbers that are not finite"):
        check(teacher, student, x)
    (w, b), top = student.layers
    with pytest.raises(UserError, match="the student has weights that are not finite"):
        check(teacher, replace(student, layers=(Layer(w / 0, b), top)), data())
    with pytest.raises(UserError, match="the student has nodes with weights below 10⁻⁶⁰"):
        check(teacher, replace(student, layers=(Layer(w * 1e-200, b), top)), data())


def test_a_student_that_is_never_active_is_refused():
    teacher, student = random_network(1, 3, 2, 2), random_network(2, 3, 4, 2)
    (w, b), top = student.layers
    with pytest.raises(UserError, match="no node of the student's lowest layer is active on any sample"):
        check(teacher, replace(student, layers=(Layer(w, b - 1e6), top)), data())


def test_the_gradient_rule_holds_where_gradients_cancel():
    """For a student equal to its teacher up to rounding, the gradient is pure rounding and contradicts nothing."""
    teacher = random_network(1, 3, 2, 2)
    found = check(teacher, near_copy(teacher, 2, 1e-12), data())
    assert not found.contradicted
