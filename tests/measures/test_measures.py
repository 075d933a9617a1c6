"""Each measure: by a case solved by hand, by an identity or limit, and by simulation with its standard error."""

import itertools
import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import understudy.measures as measures
from understudy._random import Stream, normal
from understudy.nets import Layer, Population

QUICK = settings(max_examples=25, deadline=None, derandomize=True)
sizes = st.integers(1, 6)


def gaussian(*shape: int, seed: int = 1) -> Tensor:
    return normal(seed, Stream.EVALUATION, 0, math.prod(shape)).view(shape)


class TestCorrelation:
    def test_by_hand(self) -> None:
        teacher = torch.tensor([[[1.0], [2.0], [3.0]]])
        student = torch.tensor([[[2.0, 1.0, 3.0], [4.0, 2.0, 3.0], [6.0, 1.0, 0.0]]])
        # Deviations (-1, 0, 1) against (-2, 0, 2), (-1/3, 2/3, -1/3) and (1, 1, -2): 1, 0, -3/sqrt(2 * 6).
        expected = torch.tensor([[[1.0, 0.0, -3 / math.sqrt(12)]]])
        torch.testing.assert_close(measures.correlation(teacher, student), expected, atol=1e-6, rtol=0)

    @QUICK
    @given(nets=sizes, samples=st.integers(2, 40), m=sizes, n=sizes, seed=st.integers(0, 99))
    def test_agrees_with_numpy(self, nets: int, samples: int, m: int, n: int, seed: int) -> None:
        t, s = gaussian(nets, samples, m, seed=seed), gaussian(nets, samples, n, seed=seed + 100)
        rho = measures.correlation(t, s)
        assert rho.shape == (nets, m, n)
        for e in range(nets):
            both = np.corrcoef(t[e].numpy(), s[e].numpy(), rowvar=False)
            np.testing.assert_allclose(rho[e].numpy(), both[:m, m:], atol=1e-12)

    @QUICK
    @given(cuts=st.lists(st.integers(0, 300), max_size=6), seed=st.integers(0, 99))
    def test_does_not_depend_on_the_batches(self, cuts: list[int], seed: int) -> None:
        t, s = 50 + gaussian(2, 300, 3, seed=seed), gaussian(2, 300, 4, seed=seed + 100) - 20
        s[..., 0] += t[..., 0]
        stream = measures.Correlation()
        edges = [0, *sorted(cuts), 300]
        for a, b in itertools.pairwise(edges):
            stream.update(t[:, a:b], s[:, a:b])
        torch.testing.assert_close(stream.result(), measures.correlation(t, s), atol=1e-13, rtol=0)

    def test_batches_with_different_means_are_merged(self) -> None:
        # Within a batch both are constant; the correlation is between batches only.
        stream = measures.Correlation()
        for level in (1.0, 2.0, 4.0):
            stream.update(torch.full((1, 5, 1), level), torch.full((1, 5, 1), -3 * level))
        assert stream.result().item() == pytest.approx(-1.0, abs=1e-6)

    def test_pieces_do_not_change_the_result(self, monkeypatch: pytest.MonkeyPatch) -> None:
        t, s = 3 + gaussian(5, 1000, 3), gaussian(5, 1000, 4, seed=2)
        whole = measures.correlation(t, s)
        monkeypatch.setattr(sys.modules["understudy.measures.correlation"], "_CPU_PIECE", 2000)
        torch.testing.assert_close(measures.correlation(t, s), whole, atol=1e-13, rtol=0)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
    def test_gpu_agrees_with_cpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        t, s = 3 + gaussian(5, 1000, 3), gaussian(5, 1000, 4, seed=2)
        # Pieces of 714 samples of one network, then of 286 samples of two.
        monkeypatch.setattr(sys.modules["understudy.measures.correlation"], "_GPU_PIECE", 5000)
        rho = measures.correlation(t.cuda(), s.cuda()).cpu()
        torch.testing.assert_close(rho, measures.correlation(t, s), atol=1e-13, rtol=0)

    @pytest.mark.parametrize("offset", [1e3, 1e6])
    def test_large_means_do_not_cancel(self, offset: float) -> None:
        t, s = gaussian(1, 2000, 1), gaussian(1, 2000, 1, seed=2)
        rho = measures.correlation(t + offset, t + s + offset)
        torch.testing.assert_close(rho, measures.correlation(t, t + s), atol=1e-9, rtol=0)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("value", [0.0, 0.1, -1e4, 1e-30])
    def test_a_dead_node_has_correlation_exactly_zero(self, dtype: torch.dtype, value: float) -> None:
        t, s = gaussian(1, 3000, 2).to(dtype), gaussian(1, 3000, 2, seed=2).to(dtype)
        t[..., 0] = value * (1 + torch.finfo(dtype).eps * torch.sign(t[..., 0]))
        s[..., 1] = value
        rho = measures.correlation(t, s)
        assert (rho[0, 0] == 0).all()
        assert (rho[0, :, 1] == 0).all()
        assert rho[0, 1, 0] != 0
        assert rho.dtype == dtype

    @pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e30])
    def test_nodes_that_are_not_finite_have_correlation_zero_and_do_not_affect_others(self, value: float) -> None:
        t, s = gaussian(2, 50, 2).float(), gaussian(2, 50, 2, seed=2).float()
        clean = measures.correlation(t, s)
        t[0, 3, 0] = value
        rho = measures.correlation(t, s)
        assert (rho[0, 0] == 0).all()
        assert torch.equal(rho[0, 1], clean[0, 1])
        assert torch.equal(rho[1], clean[1])

    def test_of_two_gaussians_within_four_standard_errors(self) -> None:
        # The sample correlation has standard error (1 - rho^2) / sqrt(n).
        n, rho = 200_000, 0.6
        t, noise = gaussian(1, n, 1), gaussian(1, n, 1, seed=2)
        measured = measures.correlation(t, rho * t + math.sqrt(1 - rho**2) * noise).item()
        assert abs(measured - rho) < 4 * (1 - rho**2) / math.sqrt(n)

    def test_stays_in_bounds_and_ignores_gradients(self) -> None:
        t = gaussian(1, 999, 5).float().requires_grad_()
        rho = measures.correlation(t, torch.cat((t, -t), 2))
        assert rho.abs().max() <= 1
        torch.testing.assert_close(rho[0].diagonal(), torch.ones(5), atol=1e-6, rtol=0)
        assert not rho.requires_grad

    @pytest.mark.wrong_shapes
    def test_rejects_no_samples_and_mismatches(self) -> None:
        with pytest.raises(ValueError, match="the correlation of no samples is undefined: call update"):
            measures.correlation(torch.zeros(1, 0, 2), torch.zeros(1, 0, 2))
        with pytest.raises(ValueError, match="must agree in networks and samples"):
            measures.correlation(torch.zeros(1, 3, 2), torch.zeros(1, 4, 2))


class TestMatching:
    rho = torch.tensor([[[0.2, 0.96, 0.96], [-0.5, 0.3, 0.1]]])

    def test_by_hand(self) -> None:
        index, best = measures.best_students(self.rho)
        assert index.tolist() == [[1, 1]]
        torch.testing.assert_close(best, torch.tensor([[0.96, 0.3]]))
        index, best = measures.best_teachers(self.rho)
        assert index.tolist() == [[0, 0, 0]]
        torch.testing.assert_close(best, torch.tensor([[0.2, 0.96, 0.96]]))
        torch.testing.assert_close(measures.mean_best_correlation(self.rho), torch.tensor([0.63]))
        assert measures.recovered(self.rho).tolist() == [[True, False]]
        assert measures.recovered_share(self.rho).tolist() == [0.5]

    def test_the_threshold_itself_is_not_recovered(self) -> None:
        rho = torch.full((1, 1, 1), 0.95, dtype=torch.float64)
        assert not measures.recovered(rho).item()
        assert measures.recovered(rho, threshold=0.9).item()

    def test_ties_go_to_the_lowest_index(self) -> None:
        index, _ = measures.best_students(torch.zeros(2, 3, 500))
        assert (index == 0).all()
        index, _ = measures.best_teachers(torch.zeros(2, 500, 3))
        assert (index == 0).all()

    def test_a_student_that_copies_its_teacher_is_matched_in_any_order(self) -> None:
        t = gaussian(3, 400, 6)
        order = torch.tensor([4, 0, 5, 2, 1, 3])
        index, best = measures.best_students(measures.correlation(t, t[..., order]))
        assert (index == order.argsort()).all()
        torch.testing.assert_close(best, torch.ones_like(best))

    def test_students_per_teacher_by_hand(self) -> None:
        # Students 1 and 2 have learned node 0; student 3 is above the bound for both and counts for its best alone.
        rho = torch.tensor([[[0.2, 0.96, 0.97, 0.96], [0.9, 0.3, 0.1, 0.99], [0.0, 0.0, 0.0, 0.0]]])
        best = measures.best_teachers(rho)
        assert measures.students_per_teacher(best, 3).tolist() == [[2, 1, 0]]
        assert measures.students_per_teacher(best, 3, threshold=0.965).tolist() == [[1, 1, 0]]
        assert measures.students_per_teacher(best, 3, threshold=-1.0).sum() == 4

    @QUICK
    @given(nets=sizes, m=sizes, n=sizes, seed=st.integers(0, 99))
    def test_students_per_teacher_add_up_to_those_that_specialised(self, nets: int, m: int, n: int, seed: int) -> None:
        rho = gaussian(nets, m, n, seed=seed)
        counts = measures.students_per_teacher(measures.best_teachers(rho), m)
        assert counts.shape == (nets, m)
        assert torch.equal(counts.sum(1), (rho.amax(1) > 0.95).sum(1))
        assert (counts <= (rho > 0.95).sum(2)).all()


class TestAlignment:
    def test_by_hand(self) -> None:
        teacher = Layer(torch.tensor([[[2.0, 0.0]]]), torch.tensor([[1.0]]))
        student = Layer(
            torch.tensor([[[1.0, 1.0], [3.0, 4.0], [-5.0, 0.0]]]), torch.tensor([[math.sqrt(2) * 0.75, -5.0, 2.5]])
        )
        root = math.sqrt(0.5)
        expected = torch.tensor([[[root, 0.8, 0.0]]])
        torch.testing.assert_close(measures.sin_angle(teacher.weight, student.weight), expected)
        torch.testing.assert_close(measures.bias_gap(teacher, student), torch.tensor([[[0.25, 1.5, 0.0]]]))
        torch.testing.assert_close(measures.alignment_eps(teacher, student), torch.tensor([[[root, 1.5, 0.0]]]))
        assert measures.eps_aligned(teacher, student, 0.75).tolist() == [[[True, False, True]]]

    def test_right_angles_do_not_exceed_one(self) -> None:
        # ½ √2 √2 rounds to 1 + 2⁻⁵².
        axes = torch.eye(3, dtype=torch.float64)
        assert torch.equal(measures.sin_angle(axes[None], axes[None])[0], 1 - axes)

    @pytest.mark.parametrize("about", [0.0, math.pi])
    @pytest.mark.parametrize("angle", [1e-1, 1e-4, 1e-7, 1e-10])
    def test_tiny_angles_are_resolved(self, angle: float, about: float) -> None:
        u, v = torch.linalg.qr(gaussian(50, 2)).Q.T
        turned = math.cos(about) * (math.cos(angle) * u + math.sin(angle) * v)
        measured = measures.sin_angle(3 * u.view(1, 1, -1), 0.7 * turned.view(1, 1, -1)).item()
        assert measured == pytest.approx(math.sin(angle), rel=1e-5)

    def test_float32_weights_are_measured_in_double_precision(self) -> None:
        teacher = gaussian(1, 5, 100).float()
        student = teacher + 1e-7 * gaussian(1, 5, 100, seed=2).float()
        measured = measures.sin_angle(teacher, student)
        assert measured.dtype == torch.float32
        exact = measures.sin_angle(teacher.double(), student.double())
        torch.testing.assert_close(measured.double(), exact, rtol=1e-6, atol=0)
        # The residual of a projection in extended precision is another formula for the same number.
        t, s = (w[0].numpy().astype(np.longdouble) for w in (teacher, student))
        for j in range(5):
            along = (t[j] @ s[j]) / (t[j] @ t[j])
            residual = np.sqrt(((s[j] - along * t[j]) ** 2).sum() / (s[j] @ s[j]))
            assert measured[0, j, j].item() == pytest.approx(float(residual), rel=1e-5)

    @QUICK
    @given(nets=sizes, m=sizes, n=sizes, into=sizes, seed=st.integers(0, 99))
    def test_squared_sine_and_cosine_add_to_one(self, nets: int, m: int, n: int, into: int, seed: int) -> None:
        t, s = gaussian(nets, m, into, seed=seed), gaussian(nets, n, into, seed=seed + 100)
        sine = measures.sin_angle(t, s)
        cosine = torch.nn.functional.cosine_similarity(t.unsqueeze(2), s.unsqueeze(1), dim=3)
        torch.testing.assert_close(sine.square() + cosine.square(), torch.ones(nets, m, n).double())

    @pytest.mark.parametrize("bias", [True, False])
    def test_matched_pairs_are_entries_of_the_full_matrix(self, bias: bool) -> None:
        t = Layer(gaussian(3, 4, 7), gaussian(3, 4, seed=2) if bias else None)
        s = Layer(gaussian(3, 9, 7, seed=3), gaussian(3, 9, seed=4) if bias else None)
        index = torch.tensor([[0, 8, 3, 3], [1, 2, 3, 4], [5, 5, 5, 0]])
        sine, gap = measures.matched_alignment(t, s, index)
        chosen = index.unsqueeze(2)
        whole = measures.sin_angle(t.weight, s.weight).gather(2, chosen).squeeze(2)
        torch.testing.assert_close(sine, whole, atol=1e-14, rtol=0)
        assert torch.equal(gap, measures.bias_gap(t, s).gather(2, chosen).squeeze(2))
        assert bias == bool(gap.any())

    @pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
    def test_a_node_without_a_hyperplane_is_never_aligned(self, value: float) -> None:
        t = Layer(gaussian(1, 2, 3), gaussian(1, 2, seed=2))
        s = Layer(gaussian(1, 2, 3, seed=3), gaussian(1, 2, seed=4))
        t.weight[0, 0], s.weight[0, 1] = value, value
        sine, eps = measures.sin_angle(t.weight, s.weight), measures.alignment_eps(t, s)
        assert sine[0, 0].tolist() == [1.0, 1.0]
        assert sine[0, 1, 1] == 1.0
        assert eps[0, 0].isinf().all()
        assert eps[0, 1].isinf().tolist() == [False, True]
        matched = measures.matched_alignment(t, s, torch.tensor([[1, 1]]))
        assert matched.sin_angle.tolist() == [[1.0, 1.0]]
        assert matched.bias_gap.isinf().all()

    def test_of_random_directions_within_four_standard_errors(self) -> None:
        # In three dimensions cos θ is uniform on [-1, 1], so E sin θ = π/4 and E sin² θ = 2/3.
        sine = measures.sin_angle(gaussian(40_000, 1, 3), gaussian(40_000, 1, 3, seed=2))
        error = math.sqrt((2 / 3 - math.pi**2 / 16) / len(sine))
        assert abs(sine.mean().item() - math.pi / 4) < 4 * error


class TestFanOut:
    def population(self) -> Population:
        low = Layer(torch.tensor([[[3.0, 4.0], [0.0, 2.0]]]), torch.tensor([[1.0, -7.0]]))
        middle = Layer(torch.tensor([[[1.0, 5.0], [2.0, 0.0], [2.0, 12.0]]]), None)
        return Population((low, middle, Layer(torch.tensor([[[1.0, 0.0, -2.0]]]), None)), torch.tensor([1]))

    def test_by_hand(self) -> None:
        population = self.population()
        torch.testing.assert_close(measures.fan_out(population), torch.tensor([[3.0, 13.0]]))
        torch.testing.assert_close(measures.contribution(population), torch.tensor([[15.0, 26.0]]))
        torch.testing.assert_close(measures.fan_out(population, 1), torch.tensor([[1.0, 0.0, 2.0]]))
        expected = torch.tensor([[math.sqrt(26), 0.0, 2 * math.sqrt(148)]])
        torch.testing.assert_close(measures.contribution(population, 1), expected)

    @pytest.mark.parametrize("layer", [-1, 2])
    def test_rejects_a_layer_without_outgoing_weights(self, layer: int) -> None:
        with pytest.raises(ValueError, match="layer must be a hidden layer, 0 to 1, got"):
            measures.fan_out(self.population(), layer)
        with pytest.raises(ValueError, match="layer must be a hidden layer, 0 to 1, got"):
            measures.contribution(self.population(), layer)

    def test_mean_square_of_gaussian_outputs_within_four_standard_errors(self) -> None:
        # ‖v‖² of C = 5 standard normals is χ² with mean 5 and variance 10.
        layers = (Layer(gaussian(1, 20_000, 1), None), Layer(gaussian(1, 5, 20_000, seed=2), None))
        square = measures.fan_out(Population(layers, torch.tensor([1]))).square()
        assert abs(square.mean().item() - 5) < 4 * math.sqrt(10 / 20_000)


class TestTiming:
    def test_first_recovery_by_hand(self) -> None:
        nan = math.nan
        best = torch.tensor([[[0.1, 0.96, 0.95, nan], [0.97, 0.2, 0.95, nan], [0.98, 0.99, 0.95, 0.96]]])
        when = measures.first_recovery(best, torch.tensor([0, 5, 20]))
        assert when.tolist() == [[5.0, 0.0, math.inf, 20.0]]
        lower = measures.first_recovery(best, torch.tensor([0, 5, 20]), threshold=0.9)
        assert lower.tolist() == [[5.0, 0.0, 0.0, 20.0]]

    @pytest.mark.wrong_shapes
    def test_first_recovery_rejects_epochs_that_do_not_fit(self) -> None:
        with pytest.raises(ValueError, match=r"one per measurement \(3\) and at least one, got 2"):
            measures.first_recovery(torch.zeros(1, 3, 2), torch.tensor([0, 1]))

    def test_rank_by_hand(self) -> None:
        # The final winners are students 2 and 0.
        rho = torch.tensor([[[[0.5, 0.4, 0.3], [0.2, 0.2, 0.9]], [[0.1, 0.2, 0.9], [0.8, 0.8, 0.1]]]])
        assert measures.final_winner_rank(rho).tolist() == [[[1.0, 0.5], [0.0, 0.0]]]
        assert measures.mean_rank(rho).tolist() == [[0.75, 0.0]]

    def test_ties_are_ranked_by_index(self) -> None:
        rho = torch.zeros(1, 2, 1, 5)
        rho[0, 1, 0, 3] = 1.0
        assert measures.final_winner_rank(rho).flatten().tolist() == [0.75, 0.0]

    @QUICK
    @given(nets=sizes, epochs=sizes, m=sizes, n=sizes, seed=st.integers(0, 99))
    def test_rank_is_the_position_in_the_sorted_order(self, nets: int, epochs: int, m: int, n: int, seed: int) -> None:
        rho = gaussian(nets, epochs, m, n, seed=seed)
        rank = measures.final_winner_rank(rho)
        assert rank.shape == (nets, epochs, m)
        assert (rank[:, -1] == 0).all()
        place = rho.argsort(3, descending=True).argsort(3)
        winner = rho[:, -1:].argmax(3, keepdim=True).expand(-1, epochs, -1, -1)
        assert torch.equal(rank * max(n - 1, 1), place.gather(3, winner).squeeze(3).double())

    def test_unrelated_epochs_rank_one_half_within_four_standard_errors(self) -> None:
        # A rank uniform on {0, …, n − 1} / (n − 1) has mean 1/2 and variance (n + 1) / (12 (n − 1)).
        nets, n = 20_000, 7
        rank = measures.mean_rank(gaussian(nets, 2, 1, n))[:, 0]
        assert abs(rank.mean().item() - 0.5) < 4 * math.sqrt((n + 1) / (12 * (n - 1) * nets))

    def test_median_rank_by_hand_and_beside_the_mean(self) -> None:
        # The final winner is student 0 of three; ranks 2, 0 and 0 of two at the first epoch.
        first = torch.tensor([[0.1, 0.2, 0.3], [0.9, 0.1, 0.1], [0.9, 0.1, 0.1]])
        rho = torch.stack((first, torch.eye(3)[0].expand(3, 3))).unsqueeze(0)
        assert measures.median_rank(rho).tolist() == [[0.0, 0.0]]
        assert measures.mean_rank(rho)[0, 0].item() == pytest.approx(1 / 3)
        two = measures.median_rank(rho[:, :, :2])
        torch.testing.assert_close(two, measures.mean_rank(rho[:, :, :2]))  # of two ranks both are the mean


def curves(*epochs: tuple[float, float, float]) -> Tensor:
    """Correlations of one student with three teacher nodes at every epoch."""
    return torch.tensor(epochs).unsqueeze(0).unsqueeze(3)


class TestFocusShift:
    strength = torch.tensor([[2.0, 1.0, 0.5]])

    @pytest.mark.parametrize(
        ("epochs", "expected"),
        [
            ([(0, 0, 0), (0.9, 0.1, 0), (0.1, 0, 0.99)], True),  # followed the strongest, ends on the weakest
            ([(0, 0, 0), (0.1, 0.8, 0), (0.99, 0, 0.1)], False),  # from a weaker to a stronger one
            ([(0, 0, 0), (0.9, 0.1, 0), (0.99, 0, 0)], False),  # never left
            ([(0, 0, 0), (0.9, 0.1, 0), (0.1, 0, 0.94)], False),  # does not end matched
            ([(0, 0, 0), (0.45, 0.1, 0), (0.1, 0, 0.99)], False),  # never followed another node
            ([(0.9, 0, 0), (0.1, 0.1, 0.8), (0.1, 0, 0.99)], False),  # before training does not count
            ([(0, 0, 0), (0.9, 0.1, 0), (math.nan, math.nan, math.nan)], False),  # diverged
            ([(0.1, 0, 0.99)], False),  # not trained
        ],
    )
    def test_by_hand(self, epochs: list[tuple[float, float, float]], expected: bool) -> None:
        assert measures.focus_shifts(curves(*epochs), self.strength).tolist() == [[expected]]

    def test_the_bounds_may_be_chosen(self) -> None:
        moved = curves((0, 0, 0), (0.45, 0.1, 0), (0.1, 0, 0.94))
        assert not measures.focus_shifts(moved, self.strength).any()
        assert measures.focus_shifts(moved, self.strength, follows=0.4, threshold=0.9).all()

    def test_the_strength_of_a_node_decides_and_not_its_index(self) -> None:
        moved = curves((0, 0, 0), (0, 0, 0.9), (0.99, 0, 0))
        assert not measures.focus_shifts(moved, self.strength).any()
        assert measures.focus_shifts(moved, self.strength.flip(1)).all()

    @QUICK
    @given(nets=sizes, epochs=sizes, m=sizes, n=sizes, seed=st.integers(0, 99))
    def test_agrees_with_a_loop(self, nets: int, epochs: int, m: int, n: int, seed: int) -> None:
        rho, strength = gaussian(nets, epochs, m, n, seed=seed), gaussian(nets, m, seed=seed + 100).abs()
        found = measures.focus_shifts(rho, strength)
        for e, k in itertools.product(range(nets), range(n)):
            best = rho[e, :, :, k].argmax(1).tolist()
            followed = [strength[e, j] for t, j in enumerate(best) if t and rho[e, t, j, k] > 0.5]
            shifted = rho[e, -1, best[-1], k] > 0.95 and any(s > strength[e, best[-1]] for s in followed)
            assert bool(found[e, k]) == bool(shifted)


class TestObservers:
    # One teacher 2 x₁ − 2 = 0, regular x₁ = 1; students active where x₂ > 0 and where x₁ > 5.
    teacher = Layer(torch.tensor([[[2.0, 0.0]]]), torch.tensor([[-2.0]]))
    student = Layer(torch.tensor([[[0.0, 3.0], [1.0, 0.0]]]), torch.tensor([[0.0, -5.0]]))
    x = torch.tensor([[1.0, 1.0], [1.25, 2.0], [0.75, -1.0], [0.5, 0.0], [1.75, 1.0], [6.0, 1.0], [-4.0, -1.0]])

    def test_in_band_by_hand(self) -> None:
        # The first four samples are within 0.5 of x₁ = 1; two of them have x₂ > 0 and none x₁ > 5.
        seen, band, observed = measures.observers_in_band(self.teacher, self.student, self.x, eps=0.5, kappa=0.5)
        assert (seen.tolist(), band.tolist(), observed.tolist()) == ([[[2, 0]]], [[4]], [[[True, False]]])
        above = measures.observers_in_band(self.teacher, self.student, self.x, eps=0.5, kappa=0.51)
        assert not above.observed.any()

    def test_a_share_equal_to_kappa_suffices_despite_rounding(self) -> None:
        x = torch.zeros(100, 2)
        x[:, 0] = 1.0
        for share in range(1, 100):
            x[:, 1] = (torch.arange(100) < share).float()
            assert measures.observers_in_band(self.teacher, self.student, x, 0.1, share / 100).observed[0, 0, 0]

    def test_an_empty_band_has_no_observers(self) -> None:
        found = measures.observers_in_band(self.teacher, self.student, self.x + 40.0, eps=0.1, kappa=0.0)
        assert found.band.tolist() == [[0]]
        assert not found.observed.any()

    def test_a_teacher_node_without_a_boundary_has_an_empty_band(self) -> None:
        flat = Layer(torch.zeros(1, 1, 2), torch.zeros(1, 1))
        assert measures.observers_in_band(flat, self.student, self.x, eps=0.1, kappa=0.1).band.tolist() == [[0]]

    def test_on_both_sides_by_hand(self) -> None:
        # Active where x₂ > 0: x₁ = 1, 1.25, 1.75, 6, all on the teacher's boundary or above it.
        above, below, observed = measures.observers_on_both_sides(self.teacher, self.student, self.x)
        assert (above.tolist(), below.tolist()) == ([[[4, 1]]], [[[0, 0]]])
        assert not observed.any()
        more = torch.cat((self.x, torch.tensor([[0.0, 1.0], [-1.0, 1.0]])))
        found = measures.observers_on_both_sides(self.teacher, self.student, more, min_count=2)
        assert found.below.tolist() == [[[2, 0]]]
        assert found.observed.tolist() == [[[True, False]]]
        assert not measures.observers_on_both_sides(self.teacher, self.student, more, min_count=3).observed.any()

    @QUICK
    @given(nets=sizes, samples=st.integers(1, 30), m=sizes, n=sizes, own=st.booleans(), seed=st.integers(0, 99))
    def test_counts_equal_a_plain_loop(self, nets: int, samples: int, m: int, n: int, own: bool, seed: int) -> None:
        bias = gaussian(nets, m, seed=seed + 100)
        t, s = Layer(gaussian(nets, m, 3, seed=seed), bias), Layer(gaussian(nets, n, 3, seed=seed + 200), None)
        x = gaussian(nets, samples, 3, seed=seed + 300) if own else gaussian(samples, 3, seed=seed + 300)
        band = measures.observers_in_band(t, s, x, eps=0.7, kappa=0.3)
        sides = measures.observers_on_both_sides(t, s, x)
        for e in range(nets):
            points = x[e] if own else x
            value, active = points @ t.weight[e].T + bias[e], points @ s.weight[e].T > 0
            inside = value.abs() / t.weight[e].norm(dim=1) <= 0.7
            assert torch.equal(band.band[e], inside.sum(0))
            for j in range(m):
                assert torch.equal(band.seen[e, j], active[inside[:, j]].sum(0))
                assert torch.equal(sides.above[e, j], active[value[:, j] >= 0].sum(0))
                assert torch.equal(sides.below[e, j], active[value[:, j] < 0].sum(0))

    def test_a_gaussian_band_is_observed_by_half_within_four_standard_errors(self) -> None:
        # For an orthogonal student without bias, activity is independent of the band and has probability 1/2.
        t, s = Layer(torch.tensor([[[1.0, 0.0]]]), None), Layer(torch.tensor([[[0.0, 1.0]]]), None)
        found = measures.observers_in_band(t, s, gaussian(50_000, 2).float(), eps=0.1, kappa=0.4)
        band, inside = found.band.item(), math.erf(0.1 / math.sqrt(2))
        assert abs(band / 50_000 - inside) < 4 * math.sqrt(inside * (1 - inside) / 50_000)
        assert abs(found.seen.item() / band - 0.5) < 4 * 0.5 / math.sqrt(band)
        assert found.observed.item()
