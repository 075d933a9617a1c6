"""Results of Zhou, Ge & Jin 2021 checked on given networks: forms, normal inputs, certificates and messages."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.commands import understudy
from support.pairs import gaussian as normal
from support.pairs import random_network
from understudy._errors import UserError
from understudy.nets import Layer, Population, save
from understudy.papers.local.theory.descent import descend
from understudy.papers.local.theory.setting import LocalSetting, as_students, as_teachers, moments
from understudy.papers.local.theory.starts import place_near, student_network
from understudy.papers.local.theory.teachers import random_teachers
from understudy.theory import check, results

F = torch.float64
NAMES = {
    f"S4 {name}" for name in ("theorem 2", "theorem 3", "theorem 4", "lemma 8", "lemma 9", "lemma 10", "lemma C.4")
}
OWN = [result for result in results() if result.name in NAMES]
pytestmark = pytest.mark.usefixtures("one_thread")


def _network(lower, upper):
    return Population((Layer(lower[None], None), Layer(upper[None, None], None)), torch.tensor([1]), -1.0)


def _taught(r=2, m=4, d=3, steps=0, seed=1, angle=0.2):
    """A teacher, with output weights other than 1, and students near it after some steps of descent."""
    nodes = random_teachers(r, d, [seed], separation=0.7, w_min=0.8, w_max=1.2)
    students = place_near(nodes, m, angle, [seed]).students
    ends = descend(students, nodes, 0.05, steps, [steps])[0]
    scale = 0.5 + torch.arange(r, dtype=F)
    return _network(nodes[0] / scale[:, None], scale), student_network(ends, [seed])


def _found(teacher, student, x=None):
    x = normal(9, 2_000, teacher.inputs) if x is None else x
    return {result.name: result(teacher, student, x) for result in OWN}


def test_all_results_are_registered():
    assert {result.name for result in OWN} == NAMES


@given(seed=st.integers(0, 10**6), nodes=st.integers(1, 5), size=st.integers(1, 4))
def test_the_form_of_the_paper_is_the_same_function(seed, nodes, size):
    lower, upper, x = normal(seed, nodes, size), normal(seed + 1, nodes).abs(), normal(seed + 2, 50, size)
    lower[0] *= seed % 2  # sometimes a node of length 0
    given_ = _network(lower, upper)
    expected = given_(x)[0, :, 0]
    w, v = as_students(given_)[0], as_teachers(given_)[0]
    assert torch.allclose((w.norm(dim=1) * (x @ w.T).abs()).sum(1), expected)
    assert torch.allclose((x @ v.T).abs().sum(1), expected)


@given(seed=st.integers(0, 10**6), size=st.integers(1, 12), width=st.floats(0.01, 100), samples=st.integers(2, 3000))
def test_the_scale_of_inputs_decides_nothing(seed, size, width, samples):
    x = normal(seed, samples, size)
    found, of_unit = moments(width * x), moments(x)
    assert found.width == pytest.approx(width * of_unit.width)
    assert found[1:] == pytest.approx(of_unit[1:], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("samples", "size", "most"), [(10_000, 1, 0), (10_000, 12, 0), (500, 1, 0), (500, 12, 2)])
def test_normal_inputs_are_accepted(samples, size, most):
    """Fixed draws: any limit rejects some normal inputs, and z⁴ of few samples has a long tail.

    Of 500 draws of 500 samples of 12 inputs, with 78 pairs each, 2 are rejected.
    """
    found = [moments(normal(seed, samples, size)) for seed in range(500 if samples == 500 else 50)]
    assert sum(not each.normal for each in found) <= most
    error = 1 / math.sqrt(2 * samples * size)
    assert max(abs(each.width - 1) for each in found) < 5 * error


@pytest.mark.parametrize(
    ("x", "part"),
    [
        (torch.rand(5_000, 3, generator=torch.Generator().manual_seed(1), dtype=F) * 2 - 1, "fourth"),
        (normal(1, 5_000, 3) + 0.2, "mean"),
        (normal(1, 5_000, 3) * torch.tensor([1.0, 1.0, 1.3], dtype=F), "covariance"),
        (normal(1, 5_000, 1) * torch.ones(1, 3, dtype=F), "covariance"),
        (torch.zeros(50, 3, dtype=F), "mean"),
    ],
    ids=["uniform", "shifted", "stretched", "one direction", "zero"],
)
def test_other_inputs_are_rejected(x, part):
    found = moments(x)
    assert not found.normal
    assert getattr(found, part) > 5
    teacher, student = _taught()
    for finding in (f for of in _found(teacher, student, x).values() for f in of):
        assert not finding.applies
        assert finding.failing[0].name == "normal inputs"
        assert finding.failing[0].value.startswith("not Gaussian: ")


def test_moments_by_hand():
    """±1 in one dimension: standard deviation 1, mean 0, variance 1, and a fourth moment of 1 instead of 3 ± √96/√N."""
    found = moments(torch.tensor([[1.0], [-1.0]] * 50, dtype=F))
    assert found == pytest.approx((1.0, 0.0, 0.0, 2 * math.sqrt(100 / 96)))


def test_fourth_moments_of_two_inputs_by_hand():
    """One input is ±√2, the other 0, so that the means of z⁴ and z²z'² are 2 and 0.

    Normal inputs would give 3 ± √96/√N and 1 ± √8/√N; the second deviation is the larger one.
    """
    root = math.sqrt(2)
    found = moments(torch.tensor([[root, 0.0], [-root, 0.0], [0.0, root], [0.0, -root]] * 25, dtype=F))
    assert found == pytest.approx((1.0, 0.0, 0.0, math.sqrt(100 / 8)))


def test_one_input_of_twenty_that_is_not_normal_is_detected():
    """±1 instead of a normal input: it deviates by 2 √(N/96), and the mean over all inputs by only 0.1 √(20 N/96)."""
    x = normal(1, 5_000, 20)
    x[:, 7] = x[:, 7].sign()
    found = moments(x)
    assert found.fourth == pytest.approx(2 * math.sqrt(5_000 / 96), rel=0.05)
    assert not found.normal
    assert max(found.mean, found.covariance) < 5


def test_kappa_by_hand():
    """Teacher nodes of lengths 1 and 3, students parallel to them with ‖w‖² = 1.2 and 3: R = 0.2 |x₁|, L = 0.02."""
    teacher = _network(torch.tensor([[1.0, 0.0], [0.0, 3.0]], dtype=F), torch.ones(2, dtype=F))
    student = _network(torch.tensor([[1.2, 0.0], [0.0, 3.0]], dtype=F), torch.ones(2, dtype=F))
    found = LocalSetting(teacher, student, normal(1, 50, 2))
    assert found.loss == pytest.approx(0.02)
    mass = 4 + math.sqrt(math.pi * 0.02)
    assert found.kappa == pytest.approx(1 / math.sqrt(2 * mass + 4 * 4))


def test_the_closed_form_agrees_with_samples():
    teacher, student = _taught(3, 6, 5)
    x = normal(3, 400_000, 5)
    squares = (teacher(x) - student(x))[0, :, 0].square() / 2
    found = LocalSetting(teacher, student, x[:5_000])
    assert abs(float(squares.mean() - found.loss)) < 5 * float(squares.std()) / len(x) ** 0.5


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        (random_network(1, 3, 2, 1, slope=-1.0), "without biases, and the teacher has some"),
        (
            _network(normal(1, 2, 3), torch.tensor([1.0, -0.5], dtype=F)),
            "output weights of at least 0, and the teacher has −0.5",
        ),
        (replace(_network(normal(1, 2, 3), torch.ones(2, dtype=F)), slope=0.0), "slope −1.*, and .* 0 and −1"),
        (random_network(1, 3, 2, 2, 1, slope=-1.0), "equal depth"),
    ],
    ids=["biases", "negative", "ReLU", "deep"],
)
def test_results_do_not_apply_to_other_networks(teacher, message):
    _, student = _taught()
    for result in OWN:
        with pytest.raises(UserError, match=f"{result.name} does not apply: it is stated for .*{message}"):
            result(teacher, student, normal(1, 50, 3))
    if len(teacher.layers) == 2:
        found = check(teacher, student, normal(1, 500, 3))
        named = [f.result for f in (*found.identities, *found.students, *found.dynamics)]
        named += [f.result for node in found.nodes for f in node.findings]
        assert not NAMES & set(named)
        assert {name for name, why in found.silent if "stated for" in why} >= NAMES


def test_results_do_not_apply_to_several_outputs():
    two = random_network(1, 3, 2, 2, slope=-1.0)
    bare = replace(two, layers=tuple(Layer(layer.weight, None) for layer in two.layers))
    reasons = {result.why_inapplicable(bare, bare) for result in OWN}
    assert reasons == {"it is stated for one output, and the teacher has 2"}


def test_zero_biases_count_as_no_biases():
    teacher, student = _taught()
    lower, upper = teacher.layers
    with_zeros = (Layer(lower.weight, torch.zeros(1, 2, dtype=F)), Layer(upper.weight, torch.zeros(1, 1, dtype=F)))
    assert not any(result.why_inapplicable(replace(teacher, layers=with_zeros), student) for result in OWN)


@given(seed=st.integers(0, 10**4), r=st.integers(1, 3), more=st.integers(0, 4), steps=st.sampled_from((0, 30, 300)))
def test_results_are_never_contradicted_near_a_solution(seed, r, more, steps):
    teacher, student = _taught(r, r + more, 4, steps, seed)
    for finding in (f for of in _found(teacher, student).values() for f in of):
        assert not finding.contradicted, finding


@given(seed=st.integers(0, 10**4))
def test_results_are_never_contradicted_by_random_students(seed):
    teacher = _network(normal(seed, 1 + seed % 3, 3), normal(seed + 1, 1 + seed % 3).abs())
    student = _network(10.0 ** (seed % 7 - 5) * normal(seed + 2, 4, 3), normal(seed + 3, 4).abs())
    for finding in (f for of in _found(teacher, student).values() for f in of):
        assert not finding.contradicted, finding


def test_a_small_loss_certifies_every_teacher_node():
    """One student per node converges linearly; the guaranteed angles are above the measured ones."""
    teacher, student = _taught(2, 2, 3, steps=2_000)
    found = check(teacher, student, normal(1, 3_000, 3))
    assert found.certified == 2
    for node in found.nodes:
        certificate = node.certificate
        assert certificate is not None
        assert certificate.result == "S4 lemma 8"
        assert node.nearest is not None
        assert node.nearest.sin <= certificate.eps < 0.1
    assert "2 of 2 teacher nodes are certified to have a student" in found.headline


def test_the_guaranteed_angle_by_hand():
    """r = 1: λ_min = 1, degree l = 2, and B and α computed by hand."""
    teacher = _network(torch.tensor([[0.0, 2.0]], dtype=F), torch.tensor([0.5], dtype=F))
    student = _network(torch.tensor([[0.0, -1.01]], dtype=F), torch.ones(1, dtype=F))
    loss = 0.01**2 / 2
    mass = 1 + math.sqrt(math.pi * loss)
    spread = math.pi**2 / 4 * math.sqrt(2 * loss * 3 * math.pi / 2)
    alpha = math.sqrt(2 * loss) + math.sqrt(4 / math.pi * math.sqrt(mass) * spread**1.5)
    (finding,) = _found(teacher, student)["S4 lemma 8"]
    assert finding.applies
    assert finding.agrees
    assert finding.eps == pytest.approx(math.sqrt(spread / (0.5 - alpha)), rel=1e-6)


def test_students_match_at_zero_loss():
    """Two students share a teacher node, one with the opposite sign; one student has length 0."""
    nodes = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]], dtype=F)
    teacher = _network(nodes, torch.ones(2, dtype=F))
    lower = torch.tensor([[-0.7, 0, 0], [0.3, 0, 0], [0, 1.0, 0], [0, 0, 0]], dtype=F)
    student = _network(lower, torch.tensor([1.0, 1.0, 2.0, 1.0], dtype=F))
    found = _found(teacher, student)
    (theorem,) = found["S4 theorem 2"]
    assert theorem.applies
    assert theorem.agrees
    for name in ("S4 theorem 3", "S4 theorem 4"):
        assert found[name][0].failing[0].change == "nothing: the student equals the teacher"
    turned = _network(lower + 0.1 * normal(1, 4, 3), torch.tensor([1.0, 1.0, 2.0, 1.0], dtype=F))
    (theorem,) = _found(teacher, turned)["S4 theorem 2"]
    assert [h.name for h in theorem.failing] == ["loss"]


def test_theorem_3_reports_its_threshold_and_the_measured_value():
    (finding,) = _found(*_taught(3, 6, 5))["S4 theorem 3"]
    (loss,) = finding.failing
    assert loss.name == "loss"
    assert loss.requirement.startswith("at most 10^−")
    assert "‖∇L‖/L is " in loss.value
    assert "/√(r w_max)" in loss.value
    assert loss.factor > 1e20
    assert "⟨∇L, g⟩" in finding.measured
    assert finding.agrees


def test_theorems_3_and_4_apply_to_one_teacher_node():
    found = _found(*_taught(1, 2, 2, angle=0.05))
    for name in ("S4 theorem 3", "S4 theorem 4"):
        assert found[name][0].applies
        assert found[name][0].agrees


@pytest.mark.parametrize(
    ("lower", "upper", "name"),
    [
        ([[1.0, 0.0, 0.0], [-2.0, 0.0, 0.0]], [1.0, 1.0], "angle of teacher nodes"),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [1.0, 0.0], "lengths of teacher nodes"),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0], [1, 2, -1]], [1.0] * 5, "students"),
    ],
    ids=["parallel", "zero", "too few students"],
)
def test_teachers_that_violate_the_assumptions(lower, upper, name):
    teacher = _network(torch.tensor(lower, dtype=F), torch.tensor(upper, dtype=F))
    _, student = _taught()
    for finding in (f for of in _found(teacher, student).values() for f in of):
        assert name in [h.name for h in finding.failing]
        assert all(h.change for h in finding.failing)
        assert finding.eps is None


def test_parallel_teacher_nodes_are_named():
    lower = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-3.0, 0.0, 0.0]], dtype=F)
    finding = _found(_network(lower, torch.ones(3, dtype=F)), _taught()[1])["S4 lemma 9"][0]
    (angle,) = (h for h in finding.failing if h.name == "angle of teacher nodes")
    assert angle.value == "0 up to sign, between nodes 0 and 2"
    assert angle.change == "merge the parallel teacher nodes 0 and 2"


def test_the_command_reports_the_results(tmp_path):
    teacher, student = _taught(2, 4, 3, steps=100)
    save(teacher, tmp_path / "teacher.safetensors")
    save(student, tmp_path / "student.safetensors")
    done = understudy("check", "teacher.safetensors", "student.safetensors", "--samples", "1000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in ("2021, lemma 9: averages of students", "2021, theorem 3: all students", "ε_0 of the proof"):
        assert words in done.stdout
