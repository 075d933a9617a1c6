"""Losses of networks with several exits: by hand, against the formula written as loops, and in limits."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from understudy._errors import UserError
from understudy.training.multi_exit.objectives import ExitObjective

LN = math.log
BY_HAND = torch.tensor([[[0.0, LN(3)]], [[LN(2), 0.0]]], dtype=torch.float64)
"""Logits of two exits for one image: probabilities 1/4, 3/4 and 2/3, 1/3."""


def drawn(exits=4, rows=6, classes=5, seed=0):
    random = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(exits, rows, classes, generator=random, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(0, classes, (rows,), generator=random)


def literal(objective, logits, labels, temperature, labelled, distilled):
    """The loss as Phuong (2021, eqs. 6.2 to 6.6) writes it."""
    exits, rows, _ = logits.shape
    classification = distillation = 0.0
    for n in range(labelled):
        for m in range(exits):
            classification += -torch.log_softmax(logits[m, n], 0)[labels[n]] / exits
    for n in range(distilled, rows):
        for m in range(exits):
            for t in objective.teachers[m]:
                teacher = torch.softmax(logits[t, n].detach() / temperature, 0)
                student = torch.softmax(logits[m, n] / temperature, 0)
                loss = -(temperature**2) * (teacher * student.log()).sum()
                distillation += loss / len(objective.teachers[m]) / exits
    return classification / labelled + distillation / (rows - distilled)


class TestLoss:
    LABELS = torch.tensor([0])

    def test_exit_wise_by_hand(self):
        loss = ExitObjective.exit_wise(2).loss(BY_HAND, self.LABELS, 1.0)
        assert loss.item() == pytest.approx((LN(4) + LN(1.5)) / 2)

    def test_distillation_by_hand(self):
        objective, classification = ExitObjective.last_teacher(2), (LN(4) + LN(1.5)) / 2
        at_one = (2 * LN(4) / 3 + LN(4 / 3) / 3) / 2
        assert float(objective.loss(BY_HAND, self.LABELS, 1.0)) == pytest.approx(classification + at_one)
        root2, root3 = math.sqrt(2), math.sqrt(3)
        student = [1 / (1 + root3), root3 / (1 + root3)]
        at_two = -4 * (root2 * LN(student[0]) + LN(student[1])) / (1 + root2) / 2
        assert float(objective.loss(BY_HAND, self.LABELS, 2.0)) == pytest.approx(classification + at_two)

    def test_exit_wise_is_the_mean_cross_entropy(self):
        logits, labels = drawn()
        loss = ExitObjective.exit_wise(4).loss(logits, labels, 7.0)
        assert loss.item() == pytest.approx(sum(cross_entropy(each, labels).item() for each in logits) / 4)

    @pytest.mark.parametrize(("labelled", "distilled"), [(6, 0), (3, 3), (2, 4), (4, 2)])
    @pytest.mark.parametrize("temperature", [1.0, 0.5, 2.7])
    @pytest.mark.parametrize(
        "objective",
        [
            ExitObjective.exit_wise(4),
            ExitObjective.last_teacher(4),
            ExitObjective.later_teachers(4),
            ExitObjective(((2,), (2, 3), (), ())),
        ],
    )
    def test_value_and_gradient_are_those_of_the_formula(self, objective, temperature, labelled, distilled):
        logits, labels = drawn()
        loss = objective.loss(logits, labels, temperature, labelled=labelled, distilled=distilled)
        expected = literal(objective, logits, labels, temperature, labelled, distilled)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
        own, formula = (torch.autograd.grad(each, logits)[0] for each in (loss, expected))
        assert torch.allclose(own, formula, rtol=1e-10, atol=1e-14)

    def test_teachers_are_constants(self):
        logits, labels = drawn()
        last = [torch.autograd.grad(o.loss(logits, labels, 2.0), logits)[0][-1] for o in both(4)]
        assert torch.allclose(*last, rtol=1e-12, atol=0)

    def test_an_exit_equal_to_its_teacher_learns_only_from_labels(self):
        logits, labels = drawn()
        equal = logits.detach()[-1:].expand(4, -1, -1).clone().requires_grad_()
        distilled, plain = (torch.autograd.grad(o.loss(equal, labels, 3.0), equal)[0] for o in both(4))
        assert torch.allclose(distilled, plain, rtol=1e-9, atol=1e-13)
        p = (equal[0] / 3).softmax(-1)
        entropy = -(p * p.log()).sum(-1).mean().item()
        values = [o.loss(equal, labels, 3.0).item() for o in both(4)]
        assert values[0] - values[1] == pytest.approx(9 * entropy * 3 / 4)

    def test_at_a_high_temperature_centred_logits_are_matched(self):
        """τ² times the gradient of the cross-entropy tends to (z_m − z_t)/K, both centred (Hinton et al. 2015)."""
        logits, labels = drawn()
        distilled, plain = (torch.autograd.grad(o.loss(logits, labels, 1e5), logits)[0] for o in both(4))
        centred = logits.detach() - logits.detach().mean(-1, keepdim=True)
        expected = (centred[:-1] - centred[-1]) / (5 * 4 * 6)
        assert torch.allclose((distilled - plain)[:-1], expected, rtol=1e-3, atol=1e-6)


def both(exits):
    return ExitObjective.last_teacher(exits), ExitObjective.exit_wise(exits)


class TestRefusedBatches:
    LOGITS, LABELS = torch.zeros(3, 4, 5), torch.zeros(4, dtype=torch.int64)

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"logits": torch.zeros(2, 4, 5)}, r"logits must have shape .* with 3 exits, got \[2, 4, 5\]"),
            ({"labels": LABELS[:3]}, r"labels must be one class for each of 4 rows, got \[3\]"),
            ({"labelled": 5}, "labelled must be from 1 to 4, the rows of the batch, got 5"),
            ({"labelled": 0}, "labelled must be from 1 to 4, the rows of the batch, got 0"),
            ({"distilled": 4}, "distilled must be from 0 to 3, the last row of the batch, got 4"),
            ({"distilled": -1}, "distilled must be from 0 to 3, the last row of the batch, got -1"),
            ({"temperature": 0.0}, "temperature must be a number above 0, got 0"),
            ({"temperature": math.nan}, "temperature must be a number above 0, got nan"),
        ],
    )
    def test_values(self, given, text):
        with pytest.raises(UserError, match=text):
            ExitObjective.last_teacher(3).loss(
                **({"logits": self.LOGITS, "labels": self.LABELS, "temperature": 1.0} | given)
            )

    @pytest.mark.wrong_shapes
    def test_shapes(self):
        for logits in (self.LOGITS[0], self.LOGITS[None]):
            with pytest.raises(UserError, match=r"logits must have shape \[exit, row, class\] with 3 exits, got"):
                ExitObjective.last_teacher(3).loss(logits, self.LABELS, 1.0)

    def test_labels_of_unlabelled_rows_may_be_missing(self):
        logits, labels = drawn()
        objective = ExitObjective.last_teacher(4)
        one, two = (objective.loss(logits, each, 2.0, labelled=4) for each in (labels, labels[:4]))
        assert torch.equal(one, two)


class TestTemperature:
    def test_confidence_by_hand(self):
        objective = ExitObjective.last_teacher(2)
        assert float(objective.confidence(BY_HAND, 1.0)) == pytest.approx(2 / 3)
        assert float(objective.confidence(BY_HAND, 2.0)) == pytest.approx(math.sqrt(2) / (1 + math.sqrt(2)))
        assert float(objective.confidence(BY_HAND, 1e9)) == pytest.approx(1 / 2)

    def test_confidence_is_that_of_the_mean_of_all_teachers(self):
        logits, _ = drawn()
        p = (logits / 2).softmax(-1)
        for objective, teachers in (
            (ExitObjective.later_teachers(4), [1, 2, 3]),
            (ExitObjective(((2,), (2, 3), (), ())), [2, 3]),
            (ExitObjective.last_teacher(4), [3]),
            (ExitObjective.exit_wise(4), [3]),  # has none; the last exit is recorded
        ):
            expected = sum((sum(p[t, n] for t in teachers) / len(teachers)).max().item() for n in range(6)) / 6
            assert objective.confidence(logits, 2.0).item() == pytest.approx(expected)

    def test_it_increases_where_confidence_exceeds_the_limit(self):
        objective = ExitObjective.last_teacher(3, limit=0.4, factor=1.5)
        assert objective.anneal(2.0, 0.41) == 3.0
        assert objective.anneal(2.0, 0.4) == 2.0
        assert ExitObjective.last_teacher(3, limit=None).anneal(2.0, 0.99) == 2.0
        assert ExitObjective.exit_wise(3).anneal(1.0, 0.99) == 1.0

    def test_defaults_are_those_of_the_thesis(self):
        objective = ExitObjective.last_teacher(11)
        assert (objective.temperature, objective.limit, objective.factor) == (1.0, 0.5, 1.05)
        assert objective.teachers == ((10,),) * 10 + ((),)


class TestTeachers:
    def test_sets(self):
        assert ExitObjective.later_teachers(3).teachers == ((1, 2), (2,), ())
        assert ExitObjective.exit_wise(3).teachers == ((), (), ())
        assert ExitObjective.last_teacher(1).teachers == ((),)
        assert ExitObjective([[2], [2], []]) == ExitObjective.last_teacher(3)
        assert not ExitObjective.last_teacher(1).distils and ExitObjective.last_teacher(2).distils

    @pytest.mark.parametrize(
        "make", [ExitObjective.exit_wise, ExitObjective.last_teacher, ExitObjective.later_teachers]
    )
    def test_no_exits_are_refused(self, make):
        with pytest.raises(UserError, match="exits must be a whole number of at least 1, got 0"):
            make(0)

    @pytest.mark.wrong_shapes
    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"teachers": (1, ())}, r"teachers must be a list of exits for each exit, as in .*, got \(1, \(\)\)"),
            ({"teachers": "last"}, "teachers must be a list of exits for each exit, as in .*, got 'last'"),
            ({"teachers": ((1.0,), ())}, r"teachers must be exits, counted from 0, got 1\.0"),
            ({"temperature": "1"}, "temperature must be a number, got a str"),
            ({"limit": "0.5"}, "limit must be a number, got a str"),
            ({"factor": None}, "factor must be a number, got None"),
        ],
    )
    def test_other_types_are_refused(self, given, text):
        with pytest.raises(UserError, match=text):
            ExitObjective(**{"teachers": ((1,), ())} | given)

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"teachers": ()}, "teachers must have a set for each of at least 1 exit, got none"),
            (
                {"teachers": ((0,), ())},
                r"teachers of exit 0 \(counted from 0\) must be later .* got the exit itself; the",
            ),
            ({"teachers": ((), (0,))}, r"teachers of exit 1 .* must be later exits, got the earlier exit 0"),
            ({"teachers": ((2,), ())}, "teachers of exit 0 must be exits from 0 to 1, counted from 0, got 2"),
            ({"teachers": ((-1,), ())}, "teachers of exit 0 must be exits from 0 to 1, counted from 0, got -1"),
            ({"teachers": ((1, 1), ())}, "teachers of exit 0 must each be named once, got 1, 1"),
            ({"temperature": 0.0}, "temperature must be a finite number above 0, got 0"),
            ({"temperature": math.inf}, "temperature must be a finite number above 0, got inf"),
            ({"temperature": math.nan}, "temperature must be a finite number above 0, got nan"),
            ({"limit": 0.0}, "limit must be a confidence between 0 and 1, or None for a constant temperature, got 0"),
            ({"limit": 1.2}, "limit must be a confidence between 0 and 1, .* got 1.2"),
            ({"factor": 1.0}, "factor must be a finite number above 1, got 1"),
        ],
    )
    def test_bad_values_are_refused(self, given, text):
        with pytest.raises(UserError, match=text):
            ExitObjective(**{"teachers": ((1,), ())} | given)
