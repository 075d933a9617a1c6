"""Accuracies of exits and ensembles, model selection by validation, budgets and ensembles."""

import math

import pytest
import torch

from support.exit_training import GRID, NETWORKS
from understudy.training.multi_exit.history import TOPS, ExitHistory, count_hits
from understudy.training.multi_exit.plan import ExitPlan

PLAN = ExitPlan(NETWORKS[:2], GRID, epochs=9, drops=(), probes=(2, 5))


def history(validation, test=None):
    """A history of two networks and three probes, whose accuracies of exits are [network][probe][exit] for top-5.

    The second network has no probe. Top-1 accuracies are half as large, and ensembles a hundredth better than exits.
    """
    made = ExitHistory.empty(PLAN)
    for given, into in ((validation, made.validation), (test or validation, made.test)):
        for probe, exits in enumerate(given):
            five = torch.tensor(exits, dtype=torch.float64)
            into[0, probe, 0] = torch.stack((five / 2, five), -1)
            into[0, probe, 1] = into[0, probe, 0] + 0.01
    return made


class TestHits:
    def test_by_hand(self):
        # One image of class 1; the first exit ranks it second, the second exit first, and so does their mean.
        logits = torch.log(torch.tensor([[0.5, 0.4, 0.1], [0.2, 0.7, 0.1]])).view(1, 2, 1, 3)
        assert count_hits(logits, torch.tensor([[1]])).tolist() == [[[[0, 1], [1, 1]], [[0, 1], [1, 1]]]]

    def test_ensembles_average_probabilities_and_not_logits(self):
        # Means of probabilities are 0.455, 0.295, 0.25; means of logits prefer class 1.
        logits = torch.log(torch.tensor([[0.9, 0.09, 0.01], [0.01, 0.5, 0.49]])).view(1, 2, 1, 3)
        assert logits.mean(1)[0, 0].argmax() == 1
        assert count_hits(logits, torch.tensor([[0]]))[0, 1, :, 0].tolist() == [1, 1]

    def test_against_a_loop_over_sorted_classes(self):
        random = torch.Generator().manual_seed(0)
        logits = torch.randn(2, 3, 40, 9, generator=random)
        labels = torch.randint(0, 9, (2, 40), generator=random)
        found = count_hits(logits, labels)
        for net in range(2):
            for m in range(3):
                ensemble = sum(logits[net, e].softmax(-1) for e in range(m + 1)) / (m + 1)
                for mode, scores in enumerate((logits[net, m], ensemble)):
                    for place, k in enumerate(TOPS):
                        best = scores.topk(k, -1).indices.tolist()
                        hits = sum(int(label) in row for label, row in zip(labels[net], best, strict=True))
                        assert found[net, mode, m, place] == hits

    def test_equal_scores_are_not_all_hits(self):
        for label, hits in ((0, [1, 1]), (1, [0, 1]), (4, [0, 1]), (5, [0, 0])):
            found = count_hits(torch.zeros(1, 1, 1, 9), torch.tensor([[label]]))
            assert found.flatten(0, 2).tolist() == [hits, hits]

    def test_networks_with_logits_that_are_not_finite_have_none(self):
        logits = torch.zeros(3, 2, 4, 5)
        logits[0, 0, 1, 2], logits[2, 1, 3, 4] = math.inf, math.nan
        assert count_hits(logits, torch.zeros(3, 4, dtype=torch.int64)).isnan().flatten(1).any(1).tolist() == [
            True,
            False,
            True,
        ]


class TestSelection:
    def test_the_probe_with_the_best_mean_top_5_is_chosen(self):
        assert history([[0.6, 0.7, 0.8], [0.7, 0.8, 0.9], [0.7, 0.7, 0.9]]).best().tolist() == [1, -1]

    def test_ties_are_broken_by_top_1_and_then_by_the_last(self):
        made = history([[0.5, 0.75, 0.5]] * 3)
        assert made.best().tolist() == [2, -1]
        made.validation[0, 1, 0, :, 0] += 0.125
        assert made.best().tolist() == [1, -1]

    def test_probes_that_have_not_come_are_not_chosen(self):
        assert history([[0.5, 0.6, 0.7]]).best().tolist() == [0, -1]

    def test_budgets_take_the_best_exit_by_validation(self):
        made = history([[0.1] * 3, [0.6, 0.8, 0.7]], [[0.9] * 3, [0.5, 0.4, 0.3]])
        assert made.budget()[0].tolist() == [0.5, 0.4, 0.4]  # exit 2 is not better by validation at budget 3
        assert made.budget(1)[0].tolist() == [0.25, 0.2, 0.2]
        assert made.budget()[1].isnan().all()

    def test_anytime_is_the_ensemble_at_the_chosen_probe(self):
        made = history([[0.1] * 3, [0.6, 0.8, 0.7]], [[0.9] * 3, [0.5, 0.4, 0.3]])
        assert made.anytime()[0].tolist() == pytest.approx([0.51, 0.41, 0.31])
        assert made.anytime(1)[0].tolist() == pytest.approx([0.26, 0.21, 0.16])
        assert made.anytime()[1].isnan().all()
