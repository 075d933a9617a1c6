"""Training of a population: schedule, probes, divergence, resuming after an interruption, and refused values."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

import support.exit_training
from support.exit_training import GRID, NETWORKS, PLAN, TRAINING, features, pictures, train
from understudy._errors import UserError
from understudy.data.images.epoch_batches import draw_epoch
from understudy.data.images.labelled_split import split_classes
from understudy.nets.multi_exit.grid import Grid
from understudy.training.multi_exit.engine import Batches
from understudy.training.multi_exit.history import count_hits
from understudy.training.multi_exit.objectives import ExitObjective
from understudy.training.multi_exit.plain import PlainEngine
from understudy.training.multi_exit.plan import ExitNetwork, ExitPlan
from understudy.training.multi_exit.population import train_exits

PICTURES = pictures()
WILD = ExitNetwork(3, ExitObjective.last_teacher(3), 1e30)
SHORT = replace(PLAN, networks=NETWORKS[:1], epochs=1, drops=(), probes=())


@pytest.fixture(scope="module")
def trained():
    """The small plan, trained without interruption."""
    return train(on_probe=features)


@pytest.fixture(scope="module")
def partly_diverged():
    """The small plan with a network before and one after the others, of which the first diverges."""
    return train(replace(PLAN, networks=(WILD, *NETWORKS, replace(WILD, rate=1e-3))))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the state of a short training."""
    folder = tmp_path_factory.mktemp("state")
    train(SHORT, folder=folder)
    return folder


def same(one, two):
    """Whether two trainings have the same values in every bit."""
    tensors = zip(one.history.tensors.values(), two.history.tensors.values(), strict=True)
    weights = zip(one.weights, two.weights, strict=True)
    return (
        all(torch.equal(a.nan_to_num(-1), b.nan_to_num(-1)) for a, b in tensors)
        and all(a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a) for a, b in weights)
        and one.history.measures.keys() == two.history.measures.keys()
        and all(torch.equal(each, two.history.measures[key]) for key, each in one.history.measures.items())
    )


def alone(result, network):
    """Part of a training that belongs to one network."""
    history = {name: each[network].nan_to_num(-1) for name, each in result.history.tensors.items()}
    return history | result.weights[network]


class TestTraining:
    def test_a_semi_supervised_network_by_hand(self, trained):
        """Network 1: its split, batches, rates and probes, one epoch after the other by the engine alone."""
        split = split_classes(PICTURES.labels[:TRAINING], 2, per_class=12, selection=4)
        engine = PlainEngine(GRID, [2], [NETWORKS[1].objective], PICTURES, decay=1e-3)
        everything = torch.tensor(sorted([*split.train.tolist(), *split.unlabelled.tolist()]))
        assert len(everything) == TRAINING - 7 * 4
        for epoch, rate in zip(range(1, 6), (0.2, 0.2, 0.2, 0.02, 0.02), strict=True):
            drawn = draw_epoch(2, epoch, split.train, 14, 1, everything)
            assert drawn.index.shape == (4, 28)
            progress = engine.train(Batches(*(each[None] for each in drawn), 14, 14), [rate])
            for name in ("loss", "confidence", "adjusted"):
                mean = getattr(progress, name).double().mean()
                assert getattr(trained.history, name)[1, epoch - 1].item() == pytest.approx(mean.item(), rel=1e-12)
            assert trained.history.temperature[1, epoch - 1] == progress.temperature[0, -1].double()
            if epoch in (2, 3, 5):
                probe = (0, 2, 3, 5).index(epoch)
                for name, images in (("validation", split.selection), ("test", torch.arange(TRAINING, 210))):
                    hits = count_hits(engine.predict(images[None]), PICTURES.labels[images][None])
                    assert torch.equal(getattr(trained.history, name)[1, probe], hits[0] / len(images))

    def test_networks_of_one_seed_begin_alike(self, trained):
        assert torch.equal(trained.history.test[0, 0], trained.history.test[2, 0])
        assert not torch.equal(trained.history.test[0, 0], trained.history.test[1, 0])

    def test_classes_are_learned(self):
        result = train(ExitPlan(NETWORKS[:1], GRID, per_class=18, selection=4, epochs=8, batch=8, drops=(6,)))
        assert result.history.test[0, -1, 0, -1, 0] > 0.6
        assert result.history.loss[0, -1] < result.history.loss[0, 0] / 2

    def test_weights_are_those_of_the_best_probe(self, trained):
        test = torch.arange(TRAINING, 210)
        best = trained.history.best()
        for i in range(3):
            assert best[i] > 0
            engine = PlainEngine(GRID, [1], [NETWORKS[i].objective], PICTURES)
            engine.restore({**engine.state(), **{f"0.weights.{k}": v for k, v in trained.weights[i].items()}})
            hits = count_hits(engine.predict(test[None]), PICTURES.labels[test][None])
            assert torch.equal(trained.history.test[i, best[i]], hits[0] / len(test))
            module = trained.module(i)
            assert not module.training and all(
                torch.equal(each, trained.weights[i][name]) for name, each in module.state_dict().items()
            )

    def test_measures_are_taken_at_probes(self, trained):
        assert list(trained.history.measures) == [(epoch, "sums") for epoch in (0, 2, 3, 5)]
        assert trained.history.measures[5, "sums"][:3].tolist() == [0, 1, 2]

    def test_rates_drop_after_the_given_epochs(self):
        plan = ExitPlan(NETWORKS, GRID)
        rates = [plan.rate(0, epoch) for epoch in (1, 150, 151, 225, 226, 300)]
        assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])

    def test_the_last_epoch_is_a_probe(self):
        assert PLAN.probes == (0, 2, 3, 5) and ExitPlan(NETWORKS, GRID).probes == (300,)

    def test_a_network_does_not_depend_on_others(self, trained):
        for i in range(3):
            result = train(replace(PLAN, networks=NETWORKS[i : i + 1]))
            one, among = alone(result, 0), alone(trained, i)
            assert one.keys() == among.keys() and all(torch.equal(one[name], among[name]) for name in one)


class TestDivergence:
    def test_is_marked_with_epoch_and_step_and_others_go_on(self, partly_diverged, trained):
        diverged = partly_diverged.history.diverged.tolist()
        assert diverged[0][0] == 1 and 1 < diverged[0][1] <= 4 and diverged[1:] == [[0, 0]] * 4
        assert partly_diverged.history.alive == [1, 2, 3, 4]
        assert partly_diverged.history.loss[0].isnan().all() and partly_diverged.history.loss[1:].isfinite().all()
        for i in range(3):
            one, among = alone(trained, i), alone(partly_diverged, i + 1)
            assert all(torch.equal(one[name], among[name]) for name in one)

    def test_probes_before_it_count(self, partly_diverged):
        assert (
            partly_diverged.history.validation[0, 0].isfinite().all()
            and partly_diverged.history.validation[0, 1:].isnan().all()
        )
        assert partly_diverged.history.best()[0] == 0 and partly_diverged.module(0).training is False

    def test_without_a_probe_there_is_no_network(self):
        result = train(replace(SHORT, networks=(WILD,)))
        assert result.history.best().tolist() == [-1] and result.history.budget().isnan().all()
        with pytest.raises(UserError, match=r"network 0 diverged at step \d of epoch 1, before its first probe"):
            result.module(0)

    def test_logits_that_are_not_finite_are_divergence_too(self, monkeypatch):
        class Broken(PlainEngine):
            def predict(self, images):
                logits = super().predict(images)
                logits[0, 0, 0, 0] = torch.nan
                return logits

        monkeypatch.setattr("understudy.training.multi_exit.population.PlainEngine", Broken)
        result = train(replace(PLAN, networks=(NETWORKS[0], NETWORKS[2]), probes=(2,), epochs=3))
        assert result.history.diverged.tolist() == [[2, 4], [0, 0]]
        assert result.history.loss[0].isfinite().tolist() == [True, True, False]
        assert result.history.test[0].isnan().all() and result.history.test[1].isfinite().all()


class TestResuming:
    def test_after_kills_values_are_the_same(self, trained, tmp_path):
        """Killed after epoch 3 (saved was epoch 2), then while it wrote the state of epoch 4, then finished here."""
        script = Path(support.exit_training.__file__)
        for when, count in (("epoch", "3"), ("rename", "1")):
            words = [sys.executable, str(script), str(tmp_path), when, count]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode == -signal.SIGKILL, done.stderr
        assert len(list(tmp_path.iterdir())) == 2  # the state of epoch 2, and a file that was not finished
        epochs = []
        result = train(folder=tmp_path, on_epoch=lambda epoch, _: epochs.append(epoch), on_probe=features)
        assert epochs == [3, 4, 5] and same(result, trained)
        assert [each.name for each in tmp_path.iterdir()] == ["state.safetensors"]

    def test_the_state_is_saved_at_an_interruption(self, trained, tmp_path):
        def interrupt(epoch, _):
            if epoch == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(folder=tmp_path, save_every=100, on_epoch=interrupt, on_probe=features)
        epochs = []
        result = train(folder=tmp_path, on_epoch=lambda epoch, _: epochs.append(epoch), on_probe=features)
        assert epochs == [4, 5] and same(result, trained)

    def test_a_finished_training_is_read_back(self, trained, tmp_path):
        train(folder=tmp_path, on_probe=features)
        before = (tmp_path / "state.safetensors").read_bytes()
        assert same(train(folder=tmp_path, on_probe=features), trained)
        assert (tmp_path / "state.safetensors").read_bytes() == before

    @pytest.mark.parametrize(
        ("changed", "text"),
        [
            ({"batch": 9}, r"with other batch \(14 in the file, 9 now\); choose another folder"),
            ({"epochs": 2}, r"with other epochs \(1 in the file, 2 now\)"),
            ({"networks": NETWORKS[1:2]}, "with other networks; choose"),
            ({"decay": 0.0}, r"with other decay \(0.001 in the file, 0.0 now\)"),
        ],
    )
    def test_the_state_of_another_training_is_refused(self, folder, changed, text):
        with pytest.raises(UserError, match=text):
            train(replace(SHORT, probes=(), **changed), folder=folder)

    def test_other_images_are_refused(self, folder):
        with pytest.raises(UserError, match="with other images; choose"):
            train_exits(SHORT, pictures(noise=61), TRAINING, folder=folder, engine="plain", device="cpu")
        with pytest.raises(UserError, match="with other images; choose"):
            train_exits(SHORT, PICTURES, TRAINING + 7, folder=folder, engine="plain", device="cpu")

    def test_other_files_are_refused(self, tmp_path):
        with pytest.raises(UserError, match="the folder for the state of the training does not exist; create it"):
            train(folder=tmp_path / "absent")
        file = tmp_path / "state.safetensors"
        file.write_bytes(b"not a state")
        with pytest.raises(UserError, match=r"the saved state cannot be read .* remove the file to start over"):
            train(folder=tmp_path)
        safetensors.torch.save_file({"x": torch.zeros(2)}, file)
        with pytest.raises(UserError, match=r"cannot be read \(it has no checksum, so another version wrote it\)"):
            train(folder=tmp_path)


class TestRefused:
    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"per_class": 4}, "per_class must be above the 4 images per class for model selection .* got 4"),
            ({"per_class": 21}, "per_class must be .* at most 20, the images of a class, got 21"),
            ({"selection": 0}, "selection must be a whole number of at least 1, got 0"),
            ({"per_class": 20}, "per_class must leave unlabelled images for the networks .* got 20, the images of a"),
            ({"batch": 57}, "batch must be at most the 56 labelled images to train on, got 57"),
            ({"batch": 1}, "batch must be at least 2 for networks with BatchNorm, got 1"),
            ({"batch": 0}, "batch must be a whole number of at least 1, got 0"),
            ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
            ({"networks": ()}, "networks must have at least 1 network, got none"),
            ({"drops": (0, 3)}, "drops must be epochs from 1 to 5, got 0"),
            ({"drops": (3, 3)}, "drops must increase, got 3, 3"),
            ({"probes": (6,)}, "probes must be epochs from 0 to 5, got 6"),
            ({"probes": (3, 2)}, "probes must increase, got 3, 2"),
            ({"momentum": 1.0}, "momentum must be at least 0 and below 1, got 1"),
            ({"decay": -1.0}, "decay must be a finite number of at least 0, got −1"),
            ({"grid": Grid(classes=7, image=16, channels=(2, 4), layers=3, exits=(1, 2, 3))}, "images must have shape"),
            ({"grid": replace(GRID, classes=6)}, "labels must be classes from 0 to 5 for this network, got 6"),
            ({"grid": replace(GRID, exits=(1, 3))}, "teachers must have a set for each of the 2 exits .* got 3"),
        ],
    )
    def test_values_of_the_plan(self, given, text):
        with pytest.raises(UserError, match=text):
            train(replace(PLAN, **given))

    def test_a_limit_that_no_temperature_keeps(self):
        network = ExitNetwork(1, ExitObjective.last_teacher(3, limit=1 / 7))
        text = r"limit must be above 0\.143, the confidence of a network that guesses among 7 classes, got 0\.143"
        with pytest.raises(UserError, match=text):
            train(replace(PLAN, networks=(network,)))

    def test_values_of_networks(self):
        with pytest.raises(UserError, match="unlabelled must be False for the exit-wise loss"):
            ExitNetwork(1, ExitObjective.exit_wise(3), unlabelled=True)
        for rate, shown in ((0.0, "0"), (-0.5, "−0.5"), (float("nan"), "nan")):
            with pytest.raises(UserError, match=f"rate must be a finite number above 0, got {shown}"):
                ExitNetwork(1, ExitObjective.exit_wise(3), rate)

    def test_values_of_the_call(self):
        for training in (0, 210):
            with pytest.raises(UserError, match=f"training must be at least 1 and leave images .* got {training}"):
                train_exits(PLAN, PICTURES, training)
        with pytest.raises(UserError, match="engine must be auto, plain or fused, got 'fast'"):
            train_exits(PLAN, PICTURES, TRAINING, engine="fast", device="cpu")
        with pytest.raises(UserError, match="engine fused needs a CUDA GPU, got the device cpu; use plain or auto"):
            train_exits(PLAN, PICTURES, TRAINING, engine="fused", device="cpu")
        with pytest.raises(UserError, match="save_every must be a whole number of at least 1, got 0"):
            train(save_every=0)
