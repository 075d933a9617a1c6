"""Chapter 3 of Phuong 2021 on given networks and labelled inputs: by hand, at the limit, and along gradient flow."""

import pytest
import torch

from understudy._random import Stream, normal
from understudy.data.separable import orthogonally_separable
from understudy.nets import Layer, Population
from understudy.papers.separable.theory.max_margin import margins
from understudy.papers.separable.theory.training import balanced, logistic_flow
from understudy.theory import Finding, Known, check, find_result, results

pytestmark = pytest.mark.usefixtures("one_thread")
POINTS = torch.tensor([[1.0, 0.2], [0.2, 1.0]], dtype=torch.float64)
X = torch.cat([POINTS, -POINTS])
LABELS = torch.tensor([1, 1, 0, 0])
NAMES = [result.name for result in results() if result.networks == "classifier"]


def network(w: torch.Tensor, a: torch.Tensor) -> Population:
    return Population((Layer(w.double()[None], None), Layer(a.double()[None, None], None)), torch.tensor([1]), 0.0)


def found(
    name: str, student: Population, x: torch.Tensor = X, labels: torch.Tensor = LABELS, start: Population | None = None
) -> Finding:
    (finding,) = find_result(f"S3 {name}")(student, student, x, Known(labels, start))
    return finding


def failing(finding: Finding) -> list[str]:
    return [hypothesis.name for hypothesis in finding.failing]


# w+ = (1, 1)/1.2 has margin 1 on both points of its class, and w− = −w+.
LIMIT = network(torch.tensor([[1.0, 1.0], [2.0, 2.0], [-1.0, -1.0]]), torch.tensor([2**0.5, 8**0.5, -(2**0.5)]))


@pytest.fixture(scope="module")
def trained() -> tuple[Population, Population, torch.Tensor, torch.Tensor]:
    """A network before and after gradient flow on spanning points, with the points and their classes."""
    x, y = orthogonally_separable(3, 20, [1], spanning=True)
    path = logistic_flow(balanced(3, 8, 1e-3, [1]), x, y, [0.0, 1e4])
    start, end = (network(path[0][i, 0], path[1][i, 0, 0]) for i in (0, -1))
    return start, end, x[0], y[0]


def test_every_result_of_the_chapter_is_registered():
    assert [name.removeprefix("S3 ") for name in NAMES] == [
        "lemma 3.1",
        "lemma 3.2",
        "lemma 3.3",
        "theorem 3.1",
        "corollary 3.1",
        "lemma B.6",
    ]


def test_the_limit_network_has_no_distance_from_the_limit():
    small = network(LIMIT.layers[0].weight[0] / 100, LIMIT.layers[1].weight[0, 0] / 100)
    for name in ("theorem 3.1", "corollary 3.1"):
        finding = found(name, LIMIT, start=small)
        assert finding.applies
        assert finding.agrees
    vector = margins(X, LABELS).positive.vector
    torch.testing.assert_close(vector, torch.full((2,), 1 / 1.2, dtype=torch.float64))


def test_the_network_of_two_neurons_is_a_kkt_point():
    finding = found("lemma B.6", LIMIT)
    assert finding.applies
    assert finding.agrees
    # Lengths other than those of the lemma: the network is not at equal margins, and not a KKT point.
    unequal = network(torch.tensor([[1.0, 0.0], [-1.0, -1.0]]), torch.tensor([1.0, -(2**0.5)]))
    own = found("lemma B.6", unequal).measured.split("given network is ")[1]
    assert float(own) > 0.1


def test_searches_find_the_two_extremal_directions():
    finding = found("lemma 3.2", LIMIT)
    assert finding.applies
    assert finding.agrees
    assert (
        "50 ascents end at 1 direction," in finding.measured or "of 50 ascents end at 1 direction," in finding.measured
    )


def test_neurons_in_their_sectors_stay_there():
    finding = found("lemma 3.3", LIMIT)
    assert finding.agrees
    assert finding.measured == "3 neurons are in their sectors, and 0 leave them in a step at rate 1"
    outside = network(torch.tensor([[1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]]), torch.tensor([1.0, -1.0, 1.0]))
    assert found("lemma 3.3", outside).measured.startswith("0 neurons")
    assert "of 3 that were there before training 3 are not now" in found("lemma 3.3", outside, start=LIMIT).measured


def test_neurons_are_counted_by_sector():
    some = network(
        torch.tensor([[1.0, 1.0], [-1.0, -1.0], [-1.0, 0.9], [0.0, 0.0]]), torch.tensor([1.0, -1.0, 1.0, 1.0])
    )
    finding = found("lemma 3.1", some)
    expected = "1 neurons with a > 0 are in σ+, 1 with a < 0 in σ−, 1 are active on no example, and 1 are elsewhere"
    assert finding.measured == expected
    assert finding.agrees is None
    assert found("lemma 3.1", LIMIT).agrees


@pytest.mark.parametrize("name", NAMES)
def test_gradient_flow_from_a_small_balanced_start_agrees(name, trained):
    start, end, x, y = trained
    finding = found(name.removeprefix("S3 "), end, x, y, start)
    assert finding.applies
    assert finding.agrees


def test_hypotheses_fail_one_by_one(trained):
    start, end, x, y = trained
    assert failing(found("theorem 3.1", end, x, y)) == ["start near zero"]
    w, a = start.layers[0].weight[0], start.layers[1].weight[0, 0]
    assert failing(found("theorem 3.1", end, x, y, network(w, 2 * a))) == ["balanced start"]
    drawn = orthogonally_separable(3, 20, [1])
    assert failing(found("theorem 3.1", end, drawn.x[0], drawn.y[0], start)) == [
        "support examples of both classes span the space"
    ]
    far = found("theorem 3.1", start, x, y)
    assert far.applies
    assert far.agrees is None


@pytest.mark.parametrize("name", NAMES)
def test_inputs_that_are_not_separable_are_measured_by_their_pairs_only(name):
    mixed = torch.tensor([1, 0, 0, 0])
    finding = found(name.removeprefix("S3 "), LIMIT, labels=mixed)
    assert failing(finding) == ["orthogonal separability (3.1)"]
    assert finding.measured == "not measured"
    # Points 0 and 1 of different classes, and 1 with 2 and 3 of one class, have products of the wrong sign.
    assert finding.failing[0].value.startswith("3 of 10 pairs violate it: points 1 and 3")


def test_labels_decide_whether_the_chapter_applies():
    x = normal(1, Stream.DIRECTIONS, 0, 40).view(20, 2).double()
    reasons = {name: why for name, why in check(LIMIT, LIMIT, x).silent if name in NAMES}
    assert set(reasons) == set(NAMES)
    assert all(why.endswith("there are no labels: give them (--labels)") for why in reasons.values())
    three = check(LIMIT, LIMIT, x, given=Known(torch.arange(20) % 3))
    assert dict(three.silent)["S3 theorem 3.1"] == "it is stated for two classes, and the labels have 3"


def test_a_network_and_labels_need_no_teacher():
    checked = check(None, LIMIT, X, given=Known(LABELS))
    assert {finding.result for finding in checked.classes} == set(NAMES)
    assert not checked.contradicted
    assert checked.teacher_sizes == ()
    assert len(checked.silent) + len(NAMES) == len(results())
    assert dict(checked.silent)["S3 theorem 5.1"] == "it is stated for a teacher and a student, and there is no teacher"
    assert checked.headline.endswith("results apply, none of them to teacher nodes: there is no teacher.")
