"""`us.predict` of images: the exit that decides, the running mean of exits, deadlines, notes and errors."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import understudy as us
from understudy.lab import predict_classes as module
from understudy.lab.exit_times import Timing
from understudy.lab.predict_classes import predict_in_turn
from understudy.nets.multi_exit.files import SavedExits, load_exits, save_exits
from understudy.nets.multi_exit.grid import Grid

GRID = Grid(4, 8, 3, channels=(2, 2), layers=3, exits=(1, 2, 3), head=8)
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
NAMES = ("cat", "dog", "owl", "pig")


@pytest.fixture
def network():
    """A network whose exits disagree on some images."""
    torch.manual_seed(3)
    made = us.MSDNet(GRID)
    made(torch.randn(64, 3, 8, 8))
    for head in made.exits:
        head.classifier.weight.data *= 4
    return made.eval()


@pytest.fixture
def saved(network):
    return SavedExits(network, (0.5, 0.7, 0.6), MEAN, STD, NAMES)


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)


@pytest.fixture
def x(pixels):
    """The images as the network takes them."""
    values = (pixels / 255 - np.array(MEAN)) / np.array(STD)
    return torch.from_numpy(values.transpose(0, 3, 1, 2)).float()


@pytest.fixture
def timed(monkeypatch):
    """Exits that take 1, 2 and 3 ms."""
    times = tuple(Timing(mean=ms, std=0.1, median=ms) for ms in (1.0, 2.0, 3.0))
    for name in ("time_alone", "time_in_turn"):
        monkeypatch.setattr(module, name, lambda *_: times)
    return times


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances by 1 ms whenever it is read."""
    readings = itertools.count()
    monkeypatch.setattr(module, "perf_counter", lambda: next(readings) / 1e3)


class TestBudget:
    @pytest.mark.parametrize(
        ("budget", "exit"), [(1.0, 1), (1.9, 1), (2.0, 2), (2.9, 2), (3.0, 2), (99.0, 2), (None, 2)]
    )
    def test_the_best_exit_by_validation_that_fits_decides(self, saved, pixels, x, timed, budget, exit):
        found = us.predict(saved, pixels, budget_ms=budget, device="cpu")
        logits = saved.network(x)[exit - 1]
        probabilities, labels = logits.softmax(1).max(1)
        assert [row.exit for row in found.rows] == [exit] * 6
        assert [row.label for row in found.rows] == labels.tolist()
        assert [row.confidence for row in found.rows] == pytest.approx(probabilities.tolist(), rel=1e-4)
        assert all(row.ms > 0 for row in found.rows)
        assert found.notes == () and found.times == (timed if budget else ())
        assert (found.images, found.device, found.steps) == (("0", "1", "2", "3", "4", "5"), "cpu", ())

    def test_of_equally_good_exits_the_earliest_decides(self, network, pixels, timed):
        for validation, exit in (((0.5, 0.5, 0.5), 1), ((0.4, 0.5, 0.5), 2), ((0.5, 0.4, 0.6), 3)):
            found = us.predict(SavedExits(network, validation), pixels, budget_ms=9, device="cpu")
            assert found.rows[0].exit == exit

    def test_without_validation_the_latest_exit_decides_and_it_is_stated(self, network, x, timed):
        for budget, exit, latest in ((2.5, 2, "the latest exit that fits the budget"), (None, 3, "the last exit")):
            found = us.predict(network, x, budget_ms=budget, device="cpu")
            assert found.rows[0].exit == exit
            assert found.notes == (f"{latest} was used, since no validation accuracies are known",)

    @pytest.mark.parametrize("anytime", [False, True])
    def test_a_budget_below_the_first_exit_states_its_time(self, saved, x, timed, anytime):
        with pytest.raises(us.UserError) as error:
            us.predict(saved, x, budget_ms=0.5, anytime=anytime, device="cpu")
        message = "must be at least the time of the first exit, 1 ms on this machine (cpu), got 0.5"
        assert str(error.value) == f"budget_ms {message}" and error.value.for_command == f"--budget-ms {message}"

    def test_the_fastest_exit_is_named_if_it_is_not_the_first(self, saved, x, monkeypatch):
        times = tuple(Timing(ms, 0.0, ms) for ms in (2.0, 3.0, 1.5))
        monkeypatch.setattr(module, "time_alone", lambda *_: times)
        with pytest.raises(us.UserError, match=r"the fastest exit, layer 3, 1\.5 ms on this machine"):
            us.predict(saved, x, budget_ms=1, device="cpu")

    def test_times_are_measured_here(self, saved, x):
        found = us.predict(saved, x, budget_ms=60_000, repeats=2, device="cpu")
        assert len(found.times) == 3 and all(time.median > 0 for time in found.times)

    def test_only_the_chosen_exit_is_computed(self, saved, x, timed):
        for name, part in saved.network.named_modules():
            if isinstance(part, nn.Conv2d) and name.startswith(("layers.2", "exits.0", "exits.2")):
                part.register_forward_hook(lambda *_: pytest.fail("another exit was computed"))
        us.predict(saved, x, budget_ms=2, device="cpu")

    def test_plain_values(self, saved, pixels, timed):
        found = us.predict(saved, pixels[:1], budget_ms=1, device="cpu")
        told, row = found.as_dict(), found.rows[0]
        assert told["exits"][1] == {
            "exit": 2, "at": "layer 2", "ms": 2.0, "ms_mean": 2.0, "ms_std": 0.1, "validation": 0.7,
        }  # fmt: skip
        assert told["images"] == [
            {
                "image": "0",
                "class": row.label,
                "name": NAMES[row.label],
                "exit": 1,
                "ms": row.ms,
                "confidence": row.confidence,
            }
        ]
        without = us.predict(saved.network, pixels[:1], device="cpu").as_dict()
        assert without["exits"][0]["ms"] is None and without["exits"][0]["validation"] is None
        assert "name" not in without["images"][0]


class TestAnytime:
    def test_steps_are_running_means_of_probabilities(self, saved, pixels, x):
        steps = list(us.predict(saved, pixels, anytime=True, device="cpu"))
        wanted = saved.network(x).softmax(2).cumsum(0) / torch.arange(1, 4).view(3, 1, 1)
        assert [step.exit for step in steps] == [1, 2, 3]
        torch.testing.assert_close(torch.stack([step.probabilities for step in steps]), wanted)
        times = [step.ms for step in steps]
        assert 0 < times[0] < times[1] < times[2]
        assert not any(step.probabilities.requires_grad for step in steps)

    def test_the_generator_can_be_stopped(self, saved, x):
        for name, part in saved.network.named_modules():
            if isinstance(part, nn.Conv2d) and name.startswith(("layers.1", "layers.2", "exits.1")):
                part.register_forward_hook(lambda *_: pytest.fail("a later exit was computed"))
        steps = us.predict(saved, x, anytime=True, device="cpu")
        assert next(steps).exit == 1
        steps.close()
        assert list(steps) == []

    def test_gradients_are_on_again_between_steps(self, saved, x):
        steps = us.predict(saved, x, anytime=True, device="cpu")
        next(steps)
        assert torch.is_grad_enabled()

    def test_errors_are_raised_at_the_call(self, saved):
        with pytest.raises(us.UserError, match="got an array of shape"):
            us.predict(saved, torch.zeros(1, 1, 8, 8), anytime=True)

    @pytest.mark.parametrize(("budget", "exits"), [(1.0, [1]), (2.5, [1, 2]), (9.0, [1, 2, 3])])
    def test_exits_that_cannot_be_ready_in_time_are_not_computed(self, saved, x, timed, monkeypatch, budget, exits):
        monkeypatch.setattr(module, "perf_counter", lambda: 0.0)  # a clock that never reaches the deadline
        assert [step.exit for step in us.predict(saved, x, budget_ms=budget, anytime=True, device="cpu")] == exits

    def test_an_exit_after_the_deadline_is_dropped(self, saved, x, monkeypatch, clock):
        """Exits are measured to take 0.1 ms, but take 1 ms each."""
        times = (Timing(0.1, 0.0, 0.1),) * 3
        monkeypatch.setattr(module, "time_in_turn", lambda *_: times)
        steps = list(us.predict(saved, x, budget_ms=2.5, anytime=True, device="cpu"))
        assert [(step.exit, round(step.ms)) for step in steps] == [(1, 1), (2, 2)]

    def test_one_image_after_the_other(self, saved, pixels, x):
        found = predict_in_turn(saved, pixels, device="cpu")
        means = saved.network(x).softmax(2).cumsum(0) / torch.arange(1, 4).view(3, 1, 1)
        labels = means.argmax(2).T.tolist()
        assert [[step.label for step in steps] for steps in found.steps] == labels
        assert [[step.exit for step in steps] for steps in found.steps] == [[1, 2, 3]] * 6
        assert found.rows == tuple(steps[-1] for steps in found.steps)
        told = found.as_dict()["images"][0]
        assert [step["class"] for step in told["exits"]] == labels[0] and told["class"] == labels[0][-1]


class TestGiven:
    def test_a_file_gives_what_its_network_gives(self, saved, pixels, x, tmp_path):
        save_exits(saved.network, tmp_path / "a.safetensors", validation=saved.validation, mean=MEAN, std=STD)
        np.save(tmp_path / "x.npy", pixels)
        from_file = us.predict(tmp_path / "a.safetensors", tmp_path / "x.npy", device="cpu")
        assert [row[:2] for row in from_file.rows] == [row[:2] for row in us.predict(saved, x, device="cpu").rows]
        again = us.predict(load_exits(tmp_path / "a.safetensors"), pixels, device="cpu")
        assert [row[:2] for row in again.rows] == [row[:2] for row in from_file.rows]

    def test_modules_of_the_users_in_any_precision(self):
        body = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3)).double()
        network, x = us.exits(body, [1], example=(10,)), torch.randn(5, 10)
        found = us.predict(network, x, device="cpu")
        assert [row.label for row in found.rows] == body(x.double()).argmax(1).tolist()

    def test_images_without_known_moments_are_divided_and_it_is_stated(self, network, pixels):
        found = us.predict(network, pixels, device="cpu")
        x = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
        assert [row.label for row in found.rows] == network(x)[-1].argmax(1).tolist()
        assert "images were divided by 255 and not normalised" in found.notes[0]

    def test_floating_point_images_that_seem_not_normalised_are_noted(self, saved, pixels, x):
        assert us.predict(saved, x, device="cpu").notes == ()
        (note,) = us.predict(saved, pixels / 255, device="cpu").notes
        assert note.startswith("no value is negative: floating-point images must be normalised")

    def test_outputs_that_are_not_finite_are_refused(self, saved, x):
        saved.network.exits[1].classifier.bias.data[0] = torch.inf
        for call in (us.predict, predict_in_turn):
            with pytest.raises(us.UserError, match="the outputs of exit 2 are not finite"):
                call(saved, x, device="cpu")

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"budget_ms": 0}, "budget_ms must be a time above 0 ms, got 0"),
            ({"budget_ms": float("nan")}, "budget_ms must be a time above 0 ms, got nan"),
            ({"repeats": 0}, "repeats must be a whole number of at least 1, got 0"),
            ({"repeats": 10**12}, "repeats must be at most 1,000,000,000, got 1000000000000"),
            ({"device": "abacus"}, "device must be auto, cpu or cuda"),
            ({"device": "mps"}, "device must be auto, cpu or cuda, got 'mps'"),
            (
                {"inputs": torch.zeros(2, 3, 9, 8)},
                r"takes images of 8 × 8 pixels with 3 channels, got .* \[2, 3, 9, 8\]",
            ),
            (
                {"inputs": torch.zeros(2, 1, 8, 8)},
                r"takes images of 8 × 8 pixels with 3 channels, got .* \[2, 1, 8, 8\]",
            ),
            (
                {"model": nn.Linear(3, 3)},
                "model must be a file, an MSDNet, .* got a Linear; put exits on a module with",
            ),
            ({"model": "absent.safetensors"}, "no such file; a file that save_exits or save_codes wrote is needed"),
            ({"inputs": ()}, r"images are needed: an array \(.*\) or a folder of them, got none"),
            (
                {"inputs": "a great film ."},
                "'a great film .': there is no such file, and the network takes images, not",
            ),
            (
                {"inputs": ["great"]},
                "'great': there is no such file, and the network takes images, not sentences; give",
            ),
            ({"inputs": "absent.png"}, "absent.png: there is no such file; images are needed"),
            ({"sample": 2}, "sample is for models of sentences, but this is a network with several exits; omit it"),
            ({"draw_words": True}, "draw_words is for models of sentences, but this is a network"),
        ],
    )
    def test_bad_input(self, saved, x, given, message):
        with pytest.raises(us.UserError, match=message):
            us.predict(**({"model": saved, "inputs": x, "device": "cpu"} | given))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(saved, pixels):
    here = us.predict(saved, pixels, device="cpu")
    there = us.predict(saved, pixels, budget_ms=1_000, device="cuda")
    assert there.device == "cuda" and [row.label for row in there.rows] == [row.label for row in here.rows]
    assert [step.exit for step in us.predict(saved, pixels, anytime=True, device="cuda")] == [1, 2, 3]
