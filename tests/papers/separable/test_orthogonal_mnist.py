"""Networks on two digits of MNIST: their initial weights, their tables, and the claim on pairs of images."""

import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from support.commands import Said
from support.images import needs
from support.runs import made_run
from understudy._errors import UserError
from understudy.data import Mnist
from understudy.lab.execute import execute
from understudy.papers.separable.mnist_classifier.study import MnistClassifier
from understudy.papers.separable.orthogonal_mnist.claims import claims
from understudy.papers.separable.orthogonal_mnist.study import LAYERS, OrthogonalMnist
from understudy.papers.separable.theory.representations import linear_neurons, set_pairs
from understudy.store.weights import read_weights, write_weights
from understudy.training import Logistic

TINY = {"seeds": 2, "train": 64, "evaluation": 40, "channels": (2, 3), "nodes": 6, "batch": 16, "epochs": 2}
needs_data = needs(Mnist, "MNIST")


@pytest.fixture(scope="module")
def runs(mnist, tmp_path_factory):
    """Tiny runs of both studies without reports: the networks, and their representations of images."""
    out, study = tmp_path_factory.mktemp("runs"), OrthogonalMnist(**TINY, compared=30, data=str(mnist))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.lab.execute.write_report", lambda study, run: None)
        return execute(study.depends_on()[0], out, Said()), execute(study, out, Said())


class TestNetworks:
    def test_the_network_is_that_of_table_31(self):
        networks = MnistClassifier(seeds=1).untrained()
        weights = [tuple(layer.weight.shape[1:]) for layer in networks.layers]
        assert weights[:3] == [(32, 1, 3, 3), (32, 32, 3, 3), (32, 32, 5, 5)]
        assert weights[3:] == [(64, 32, 3, 3), (64, 64, 3, 3), (64, 64, 5, 5), (128, 3136), (1, 128)]
        assert networks.inputs == 784 and networks.slope == 0 and networks(torch.zeros(2, 784)).shape == (1, 2, 1)

    def test_initial_weights_are_those_of_torch_except_for_scaled_linear_weights(self):
        networks = MnistClassifier(seeds=3, channels=(8, 8), nodes=64).untrained()
        for i, (weight, bias) in enumerate(networks.layers):
            most = weight[0, 0].numel() ** -0.5
            shrunk = 0.05 if i >= LAYERS - 1 else 1.0
            assert 0.8 * shrunk * most < weight.abs().max() <= shrunk * most
            assert 0.5 * shrunk * most * (i < LAYERS) < bias.abs().max() <= shrunk * most
        assert not torch.equal(networks.layers[0].weight[0], networks.layers[0].weight[1])

    def test_the_experiment_has_the_options_of_the_study(self, mnist):
        experiment = MnistClassifier(**TINY, data=str(mnist), digits=(3, 8)).experiment()
        (group,) = experiment.groups
        assert group.labelled and group.objective == Logistic() and group.data.digits == (3, 8)
        assert (experiment.steps, experiment.epochs, experiment.optimiser.batch) == (4, 2, 16)
        whole = MnistClassifier(data=str(mnist))
        assert whole.source().train == 12_665 and whole.source().train // whole.batch == 98

    def test_weights_are_read_back_with_strides_and_paddings(self, tmp_path):
        networks = MnistClassifier(**TINY).untrained()
        write_weights(tmp_path / "w", {"epoch.0": [networks]})
        (back,) = read_weights(tmp_path / "w", "epoch.0")
        assert back.shape == networks.shape and back.convolutions == networks.convolutions
        x = torch.ones(2, 784)
        assert torch.equal(back(x), networks(x))


class TestTables:
    def test_pairs_and_neurons_agree_with_the_functions_of_theory(self, runs, mnist):
        made, run = runs
        data = Mnist(mnist, (0, 1), train=64, evaluation=40)
        for network, epoch in ((0, 0), (1, 2)):
            one = made.weights(f"epoch.{epoch}")[0][network].to(dtype=torch.float64)
            x, labels = data.training(network + 1, dtype=torch.float64), data.training_labels(network + 1)
            (layers, checks), (singular, *_) = set_pairs(one, x, labels, 30), linear_neurons(one, x, labels)
            probe = list(run.epochs).index(epoch)
            for layer, found in enumerate(layers):
                assert run.series("cosine apart training", layer)[network, probe] == pytest.approx(found.cosine_between)
                wrong = run.series("apart some training", layer)[network, probe]
                assert wrong == found.separability.share_apart
            assert run.series("alike before training", LAYERS)[network, probe] == checks["before"].share_alike
            rows = run.nodes.filter((pa.compute.field("network") == network) & (pa.compute.field("epoch") == epoch))
            values = rows.filter(pa.compute.field("role") == "value")
            np.testing.assert_allclose(values["value"], singular, rtol=1e-9)
            bins = rows.filter((pa.compute.field("role") == "bin") & (pa.compute.field("set") == "training"))
            bins = bins.filter(pa.compute.field("layer") == 0)
            assert sum(bins[name].to_numpy().sum() for name in ("apart", "first", "second")) == 30 * 29 / 2
            accuracy = made.series("accuracy")[network, epoch]
            assert run.series("accuracy")[network, probe] == accuracy

    def test_a_run_that_was_stopped_resumes(self, runs, mnist, tmp_path, monkeypatch):
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

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
    def test_a_gpu_agrees_before_training_and_trains(self, runs, mnist, tmp_path):
        run = execute(OrthogonalMnist(**TINY, compared=30, data=str(mnist), device="cuda"), tmp_path, Said())
        here, there = (each.series("cosine apart test", LAYERS) for each in (runs[1], run))
        np.testing.assert_allclose(there[:, 0], here[:, 0], rtol=1e-9)
        assert np.isfinite(there[:, -1]).all() and run.networks["diverged_at"].null_count == 2
        values = [each.nodes.filter(pa.compute.field("role") == "value")["value"].to_numpy() for each in (runs[1], run)]
        np.testing.assert_allclose(values[1], values[0], rtol=0.05)

    def test_a_small_run_has_all_figures_and_decides_nothing(self, runs, mnist):
        study = OrthogonalMnist(**TINY, compared=30, data=str(mnist))
        assert claims(study, runs[1]) == []
        story = study.story(runs[1])
        assert [figure.name for figure in story.figures] == ["similarity", "layers", "weights"]
        cosine = np.median(runs[1].series("cosine apart test", LAYERS)[:, -1])
        assert f"have a mean cosine of {cosine:.2f} after training" in story.headline
        assert "nan" not in story.headline and "None" not in story.headline
        similarity, _, weights = (figure.kind for figure in story.figures)
        assert [panel.title for panel in similarity.panels] == ["images", *(f"layer {i}" for i in range(1, 8))]
        for panel in similarity.panels:
            assert all(series.y[1:-1:2].sum() == pytest.approx(1) for series in panel.series)
        assert [len(series.x) for series in weights.panels[0].series] == [6, 6]


def run_with(apart, alike=(0.0, 0.0), significant=(5, 8), diverged=(None, None)):
    """A run of two networks with these shares of pairs on both sets of images, and numbers of singular values."""
    networks = [{"seed": seed, "diverged_at": at} for seed, at in enumerate(diverged, 1)]
    lost = np.array([[np.nan if at is not None else 0.0] for at in diverged])
    metrics = {f"above {n}%": np.array([[128, count - n + 5] for count in significant]) + lost for n in (5, 10)}
    for images in ("training", "test"):
        for kind in ("all", "nearly", "before", "some"):
            factor = 0.0 if kind == "nearly" else 1.0
            metrics[f"apart {kind} {images}", LAYERS] = np.array([[factor * share] * 2 for share in apart]) + lost
            metrics[f"alike {kind} {images}", LAYERS] = np.array([[share] * 2 for share in alike]) + lost
    return made_run(networks, (0, 50), metrics)


class TestClaims:
    STUDY = OrthogonalMnist(seeds=2)

    def decided(self, run) -> dict:
        return {claim.part: claim for claim in claims(self.STUDY, run)}

    def test_all_parts_hold_where_no_pair_violates_eq_31(self):
        found = self.decided(run_with((0.0, 0.0)))
        sets = [f"{images} images, {kind} the ReLU" for images in ("training", "test") for kind in ("after", "before")]
        assert list(found) == [*sets, "W7, 5%", "W7, 10%"]
        assert all(claim.holds and claim.id == "B4" and claim.n == 2 for claim in found.values())
        measured = found["test images, after the ReLU"].measured
        assert measured.startswith(
            "2 of 2 networks; above 0 are, of the pairs of two digits, network by network none, "
        )
        assert found["W7, 5%"].measured == "network by network 5, 8; at the start 128"
        assert found["W7, 10%"].values == (0, 3)

    def test_most_networks_decide_and_each_is_shown(self):
        found = self.decided(run_with((0.0, 1e-6)))
        after, before = (found[f"test images, {kind} the ReLU"] for kind in ("after", "before"))
        assert not after.holds and not before.holds and found["W7, 5%"].holds
        assert "network by network none, 0.0001%" in after.measured and after.values == (0.0, 1e-6)
        every, nearly, some = after.variants
        assert not every.holds and nearly.holds and not some.holds
        assert "0.05" in nearly.where and some.where == "500 images, as in a figure"
        three = run_with((0.0, 0.0, 1e-6), (0.0, 0.0, 0.0), (5, 8, 40), (None, None, None))
        found = {claim.part: claim for claim in claims(OrthogonalMnist(seeds=3), three)}
        assert found["test images, after the ReLU"].holds and not found["test images, after the ReLU"].variants[0].holds
        assert found["W7, 5%"].holds and not found["W7, 5%"].variants[0].holds

    def test_pairs_of_one_digit_count_too(self):
        found = self.decided(run_with((0.0, 0.0), alike=(0.0, 0.5)))
        assert not found["training images, after the ReLU"].holds

    @pytest.mark.parametrize(("significant", "holds"), [((10, 10), True), ((3, 11), False)])
    def test_at_most_ten_singular_values_are_few(self, significant, holds):
        assert self.decided(run_with((0.0, 0.0), significant=significant))["W7, 5%"].holds is holds

    def test_networks_that_diverged_do_not_count(self):
        found = self.decided(run_with((1.0, 0.0), diverged=(7, None)))
        assert found["test images, after the ReLU"].holds and found["test images, after the ReLU"].n == 1
        lost = run_with((1.0, 0.0), diverged=(7, 9))
        assert self.decided(lost) == {}
        assert "All 2 networks diverged, the first at step 7" in self.STUDY.story(lost).headline

    @pytest.mark.parametrize("other", [{"epochs": 49}, {"digits": (0, 2)}, {"train": 500}, {"start": 1.0}])
    def test_other_settings_decide_nothing(self, other):
        assert claims(replace(self.STUDY, **other), run_with((0.0, 0.0))) == []


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"digits": (0, 1, 2)}, "--digits must be two numbers, got 0 1 2"),
            ({"digits": (0, 10)}, "--digits must be at least 0 and at most 9, got 10"),
            ({"digits": (1, 1)}, "--digits takes each value once, got 1 1"),
            ({"channels": (8,)}, "--channels must be two numbers, got 8"),
            ({"channels": (8, 0)}, "--channels must be at least 1, got 0"),
            ({"train": 100}, r"--batch must be at most the number of training samples \(100\), got 128"),
            ({"evaluation": 2_116}, r"--evaluation must be at most the number of images \(2,115\), got 2116"),
            (
                {"train": 11_500, "digits": (4, 5)},
                r"--train must be at most the number of images \(11,263\), got 11500",
            ),
            ({"batch": 12_666}, r"--batch must be at most the number of training samples \(12,665\), got 12666"),
            ({"start": 0.0}, "--start must be above 0, got 0"),
            ({"compared": 3}, "--compared must be at least 10, got 3"),
        ],
    )
    def test_invalid_options(self, options, text):
        with pytest.raises(UserError, match=text):
            OrthogonalMnist(**options)

    def test_missing_images(self, tmp_path):
        study = OrthogonalMnist(**TINY, data=str(tmp_path))
        with pytest.raises(UserError, match=r"--data: .*no files of MNIST; download train-images-idx3-ubyte.gz"):
            execute(study, tmp_path / "runs", Said())


@needs_data
def test_real_digits_are_soon_classified_and_separate(tmp_path):
    small = {"seeds": 1, "train": 600, "evaluation": 200, "channels": (4, 8), "batch": 25, "epochs": 8}
    run = execute(OrthogonalMnist(**small, compared=100), tmp_path, Said())
    assert run.series("accuracy")[0, -1] > 0.97
    first, last = run.series("cosine apart test", LAYERS)[0]
    assert first > 0.99 and last < 0.9
    assert run.series("above 5%")[0, -1] < 40 < run.series("above 5%")[0, 0]
