"""Networks on two digits of MNIST: how they start, what is kept of them, and what their pairs of images decide."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from support.commands import Said
from support.images import needs
from understudy.data import Mnist
from understudy.errors import UserError
from understudy.lab.execute import execute
from understudy.papers.separable.mnist_classifier.study import MnistClassifier
from understudy.papers.separable.orthogonal_mnist.claims import claims
from understudy.papers.separable.orthogonal_mnist.study import LAYERS, OrthogonalMnist
from understudy.papers.separable.theory.representations import linear_neurons, set_pairs
from understudy.store import Run
from understudy.store.config import to_toml
from understudy.store.tables import write_table
from understudy.store.weights import read_weights, write_weights
from understudy.training import Logistic

TINY = {"seeds": 2, "train": 64, "evaluation": 40, "channels": (2, 3), "nodes": 6, "batch": 16, "epochs": 2}
needs_data = needs(Mnist, "MNIST")


@pytest.fixture(scope="module")
def runs(mnist, tmp_path_factory):
    """A tiny run of both studies, untold: of the networks, and of what they make of images."""
    out, study = tmp_path_factory.mktemp("runs"), OrthogonalMnist(**TINY, compared=30, data=str(mnist))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.lab.execute.write_report", lambda study, run: None)
        return execute(study.needs()[0], out, Said()), execute(study, out, Said())


class TestNetworks:
    def test_the_network_of_table_31(self):
        networks = MnistClassifier(seeds=1).untrained()
        weights = [tuple(layer.weight.shape[1:]) for layer in networks.layers]
        assert weights[:3] == [(32, 1, 3, 3), (32, 32, 3, 3), (32, 32, 5, 5)]
        assert weights[3:] == [(64, 32, 3, 3), (64, 64, 3, 3), (64, 64, 5, 5), (128, 3136), (1, 128)]
        assert networks.inputs == 784 and networks.slope == 0 and networks(torch.zeros(2, 784)).shape == (1, 2, 1)

    def test_they_start_as_torchs_layers_do_but_for_the_linear_weights(self):
        networks = MnistClassifier(seeds=3, channels=(8, 8), nodes=64).untrained()
        for i, (weight, bias) in enumerate(networks.layers):
            most = weight[0, 0].numel() ** -0.5
            shrunk = 0.05 if i >= LAYERS - 1 else 1.0
            assert 0.8 * shrunk * most < weight.abs().max() <= shrunk * most
            assert bias.abs().max() <= most and (i == LAYERS or bias.abs().max() > 0.5 * most)
        assert not torch.equal(networks.layers[0].weight[0], networks.layers[0].weight[1])

    def test_what_is_trained(self, mnist):
        experiment = MnistClassifier(**TINY, data=str(mnist), digits=(3, 8)).experiment()
        (group,) = experiment.groups
        assert group.labelled and group.objective == Logistic() and group.data.digits == (3, 8)
        assert (experiment.steps, experiment.epochs, experiment.optimiser.batch) == (4, 2, 16)
        whole = MnistClassifier(data=str(mnist))
        assert whole.source().train == 12_665 and whole.source().train // whole.batch == 98

    def test_weights_come_back_with_strides_and_paddings(self, tmp_path):
        networks = MnistClassifier(**TINY).untrained()
        write_weights(tmp_path / "w", {"epoch.0": [networks]})
        (back,) = read_weights(tmp_path / "w", "epoch.0")
        assert back.shape == networks.shape and back.convolutions == networks.convolutions
        x = torch.ones(2, 784)
        assert torch.equal(back(x), networks(x))


class TestTables:
    def test_pairs_and_neurons_are_what_theory_says_of_the_networks(self, runs, mnist):
        made, run = runs
        data = Mnist(mnist, (0, 1), train=64, evaluation=40)
        for network, epoch in ((0, 0), (1, 2)):
            one = made.weights(f"epoch.{epoch}")[0][network].to(dtype=torch.float64)
            x, labels = data.training(network + 1, dtype=torch.float64), data.training_labels(network + 1)
            pairs, neurons = set_pairs(one, x, labels, 30), linear_neurons(one, x, labels)
            look = list(run.epochs).index(epoch)
            for layer, found in enumerate(pairs.layers):
                assert run.series("cosine apart training", layer)[network, look] == pytest.approx(found.cosine_between)
                wrong = run.series("apart some training", layer)[network, look]
                assert wrong == found.separability.share_apart
            assert run.series("alike before training", LAYERS)[network, look] == pairs.before.share_alike
            rows = run.nodes.filter((pa.compute.field("network") == network) & (pa.compute.field("epoch") == epoch))
            values = rows.filter(pa.compute.field("role") == "value")
            np.testing.assert_allclose(values["value"], neurons.singular, rtol=1e-9)
            bins = rows.filter((pa.compute.field("role") == "bin") & (pa.compute.field("set") == "training"))
            bins = bins.filter(pa.compute.field("layer") == 0)
            assert sum(bins[name].to_numpy().sum() for name in ("apart", "first", "second")) == 30 * 29 / 2
            accuracy = made.series("accuracy")[network, epoch]
            assert run.series("accuracy")[network, look] == accuracy

    def test_a_run_that_was_stopped_goes_on(self, runs, mnist, tmp_path, monkeypatch):
        study, said = OrthogonalMnist(**TINY, compared=30, data=str(mnist)), Said()
        piece = OrthogonalMnist._piece

        def stops(self, run, network):
            if network:
                raise KeyboardInterrupt
            return piece(self, run, network)

        monkeypatch.setattr("understudy.lab.execute.write_report", lambda study, run: None)
        shutil.copytree(runs[0].folder.parent, tmp_path / "mnist-classifier")
        monkeypatch.setattr(OrthogonalMnist, "_piece", stops)
        with pytest.raises(KeyboardInterrupt):
            execute(study, tmp_path, said)
        monkeypatch.setattr(OrthogonalMnist, "_piece", piece)
        again = execute(study, tmp_path, said)
        assert again.metrics.equals(runs[1].metrics) and again.nodes.equals(runs[1].nodes)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card")
    def test_a_card_finds_the_same_before_training_and_trains(self, runs, mnist, tmp_path):
        run = execute(OrthogonalMnist(**TINY, compared=30, data=str(mnist), device="cuda"), tmp_path, Said())
        here, there = (each.series("cosine apart test", LAYERS) for each in (runs[1], run))
        np.testing.assert_allclose(there[:, 0], here[:, 0], rtol=1e-9)
        assert np.isfinite(there[:, -1]).all() and run.networks["diverged_at"].null_count == 2
        values = [each.nodes.filter(pa.compute.field("role") == "value")["value"].to_numpy() for each in (runs[1], run)]
        np.testing.assert_allclose(values[1], values[0], rtol=0.05)

    def test_they_are_told_and_decide_nothing(self, runs, mnist):
        study = OrthogonalMnist(**TINY, compared=30, data=str(mnist))
        assert claims(study, runs[1]) == []
        told = study.story(runs[1])
        assert [figure.name for figure in told.figures] == ["similarity", "layers", "weights"]
        cosine = np.median(runs[1].series("cosine apart test", LAYERS)[:, -1])
        assert f"have a mean cosine of {cosine:.2f} after training" in told.headline
        assert "nan" not in told.headline and "None" not in told.headline
        similarity, _, weights = (figure.kind for figure in told.figures)
        assert [panel.title for panel in similarity.panels] == ["images", *(f"layer {i}" for i in range(1, 8))]
        for panel in similarity.panels:
            assert all(series.y[1:-1:2].sum() == pytest.approx(1) for series in panel.series)
        assert [len(series.x) for series in weights.panels[0].series] == [6, 6]


def made_up(folder, apart, alike=(0.0, 0.0), significant=(5, 8), diverged=(None, None)) -> Run:
    """A run of two networks with these shares of pairs on both sets, and singular values."""
    rows = []
    for network in (0, 1):
        if diverged[network] is not None:
            continue
        for epoch in (0, 50):
            rows.append((network, epoch, -1, "significant", 128 if epoch == 0 else significant[network]))
            for which in ("training", "test"):
                for kind in ("all", "nearly", "before"):
                    low = 0.0 if kind == "nearly" else 1.0
                    rows.append((network, epoch, LAYERS, f"apart {kind} {which}", low * apart[network]))
                    rows.append((network, epoch, LAYERS, f"alike {kind} {which}", alike[network]))
    columns = zip(*rows, strict=True) if rows else ((),) * 5
    names = ("network", "epoch", "layer", "metric", "value")
    kinds = (pa.int32(), pa.int32(), pa.int16(), pa.string(), pa.float64())
    metrics = {n: pa.array(list(c), k) for n, c, k in zip(names, columns, kinds, strict=True)}
    write_table(folder / "metrics.parquet", pa.table(metrics))
    networks = {"network": pa.array([0, 1], pa.int32()), "seed": [1, 2], "diverged_at": pa.array(diverged, pa.int64())}
    write_table(folder / "networks.parquet", pa.table(networks))
    write_table(folder / "nodes.parquet", pa.table({name: metrics[name] for name in names[:3]}))
    (folder / "config.toml").write_text(to_toml(OrthogonalMnist(seeds=2).config()))
    (folder / "weights.safetensors").touch()
    (folder / "environment.json").write_text(json.dumps({}))
    return Run(folder)


class TestClaims:
    STUDY = OrthogonalMnist(seeds=2)

    def decided(self, run) -> dict:
        return {claim.part: claim for claim in claims(self.STUDY, run)}

    def test_what_holds(self, tmp_path):
        found = self.decided(made_up(tmp_path, (0.0, 0.0)))
        assert list(found) == ["training images", "test images", "W7"]
        assert all(claim.holds and claim.id == "B4" and claim.n == 2 for claim in found.values())
        assert "of two digits none are above 0, of pairs of one digit none are not" in found["test images"].measured
        assert found["W7"].measured == "5 to 8; at the start 128 to 128"

    def test_one_pair_in_one_network_breaks_it(self, tmp_path):
        found = self.decided(made_up(tmp_path, (0.0, 1e-6)))
        assert not found["training images"].holds and not found["test images"].holds and found["W7"].holds
        assert "none to 0.0001% are above 0" in found["test images"].measured
        nearly, before = found["test images"].beside
        assert nearly.holds and not before.holds and "0.05" in nearly.where and "ReLU" in before.where

    def test_pairs_of_one_digit_break_it_too(self, tmp_path):
        assert not self.decided(made_up(tmp_path, (0.0, 0.0), alike=(0.0, 0.5)))["training images"].holds

    @pytest.mark.parametrize(("significant", "holds"), [((10, 10), True), ((3, 11), False)])
    def test_ten_singular_values_are_few(self, tmp_path, significant, holds):
        assert self.decided(made_up(tmp_path, (0.0, 0.0), significant=significant))["W7"].holds is holds

    def test_networks_that_diverged_do_not_count(self, tmp_path):
        (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
        found = self.decided(made_up(tmp_path / "a", (1.0, 0.0), diverged=(7, None)))
        assert found["test images"].holds and found["test images"].n == 1
        lost = made_up(tmp_path / "b", (1.0, 0.0), diverged=(7, 9))
        assert self.decided(lost) == {}
        assert "All 2 networks diverged, the first at step 7" in self.STUDY.story(lost).headline

    @pytest.mark.parametrize("other", [{"epochs": 49}, {"digits": (0, 2)}, {"train": 500}, {"start": 1.0}])
    def test_other_settings_decide_nothing(self, tmp_path, other):
        assert claims(replace(self.STUDY, **other), made_up(tmp_path, (0.0, 0.0))) == []


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"digits": (0, 1, 2)}, "--digits: 0 1 2 was given; allowed are two different digits from 0 to 9"),
            ({"digits": (0, 10)}, "--digits: 0 10 was given"),
            ({"digits": (1, 1)}, "--digits: 1 1 was given; name each value once"),
            ({"channels": (8,)}, "--channels: 8 was given; allowed are two numbers"),
            ({"channels": (8, 0)}, "--channels: 0 was given"),
            ({"train": 100}, "--batch: 128 was given; allowed is up to the training images, 100"),
            ({"evaluation": 2_116}, "--evaluation: 2116 was given; allowed is up to the images there are, 2115"),
            ({"train": 11_500, "digits": (4, 5)}, "--train: 11500 was given; allowed is up to .*, 11263"),
            ({"batch": 12_666}, "--batch: 12666 was given; allowed is up to the training images, 12665"),
            ({"start": 0.0}, "--start: 0.0 was given; allowed is a number above 0"),
            ({"compared": 3}, "--compared: 3 was given; allowed is a whole number from 10"),
        ],
    )
    def test_options_that_cannot_be(self, options, text):
        with pytest.raises(UserError, match=text):
            OrthogonalMnist(**options)

    def test_no_images_no_run(self, tmp_path):
        study = OrthogonalMnist(**TINY, data=str(tmp_path))
        with pytest.raises(UserError, match=r"--data: .*none of MNIST's files; download train-images-idx3-ubyte.gz"):
            execute(study, tmp_path / "runs", Said())


@needs_data
def test_real_digits_are_soon_told_apart_and_come_apart(tmp_path):
    small = {"seeds": 1, "train": 600, "evaluation": 200, "channels": (4, 8), "batch": 25, "epochs": 8}
    run = execute(OrthogonalMnist(**small, compared=100), tmp_path, Said())
    assert run.series("accuracy")[0, -1] > 0.97
    first, last = run.series("cosine apart test", LAYERS)[0]
    assert first > 0.99 and last < 0.9
    assert run.series("significant")[0, -1] < 40 < run.series("significant")[0, 0]
