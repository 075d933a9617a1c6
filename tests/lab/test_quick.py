"""`understudy run STUDY --quick` shows the main result of studies of layers and of codes, run by the command line.

Bounds allow for rounding differences between machines; networks that do not learn are far outside all of them.
"""

import re
from collections.abc import Callable
from html import unescape

import numpy as np
import pytest

from support.commands import understudy
from support.images import needs
from understudy.data import Cifar10
from understudy.papers.autoencoder.movie_sentences.results import by_setting
from understudy.papers.autoencoder.results import results
from understudy.report.story import split_headline
from understudy.store import Run

needs_data = needs(Cifar10, "CIFAR-10")


def layers(run: Run, metric: str = "rho_mean") -> np.ndarray:
    """[network, layer, epoch] of a metric of layers, NaN where a network has no such layer."""
    top = max(run.metrics["layer"].to_pylist())
    return np.stack([run.series(metric, layer) for layer in range(top + 1)], axis=1)


def deep(run: Run) -> None:
    """Every layer learns its teacher's nodes, and a lower one sooner."""
    rho = layers(run)
    assert (rho[..., 0] < 0.6).all()
    assert (rho[..., -1] > 0.95).all()
    passed = (rho > 0.9).argmax(axis=2)
    assert (np.diff(passed, axis=1) > 0).all(), passed


def deep_samples(run: Run) -> None:
    """Correlations rise with samples in every layer, for both losses; only squared error matches the top layer."""
    loss, samples = run.column("loss"), run.column("samples")
    ends = {
        kind: np.stack([layers(run)[(loss == kind) & (samples == n), :, -1].mean(axis=0) for n in np.unique(samples)])
        for kind in ("mse", "cross-entropy")
    }
    assert all((np.diff(rho, axis=0) > 0).all() and (rho[-1] - rho[0] > 0.1).all() for rho in ends.values()), ends
    assert ends["mse"][-1, -1] > 0.95 > 0.8 > ends["cross-entropy"][-1, -1], ends


def gaus(run: Run) -> None:
    """Correlations grow, on fresh data more; winners are ahead after one epoch, and less so before training."""
    rho = np.nanmean(layers(run)[..., [0, -1]], axis=1)
    fresh = run.column("data") == "infinite"
    assert (np.diff(rho[fresh]) > 0.1).all(), rho
    assert (rho[fresh, 1] > rho[~fresh, 1]).all(), rho
    begun, early = np.nanmean(layers(run, "mean_rank")[..., :2], axis=(0, 1))
    assert early < 0.05 < begun, (begun, early)


def over_parameterization(run: Run) -> None:
    """Wider students match better up to 5× and not worse at 10×; for every seed the loss falls with width."""
    rho, loss = layers(run).mean(axis=1), run.series("eval_loss")
    assert (rho[:, -1] - rho[:, 0] > 0.25).all(), rho
    multiple = run.column("multiple")
    widths = np.unique(multiple)
    ends = np.array([rho[multiple == k, -1].mean() for k in widths])
    assert (np.diff(ends) > [0.02, 0.02, -0.02]).all(), ends
    by_seed = np.stack([loss[multiple == k, -1] for k in widths])
    assert (np.diff(by_seed, axis=0) < 0).all(), by_seed


def lottery(run: Run) -> None:
    """Winners with their initial weights end at a lower loss than redrawn ones in most seeds, and match better."""
    ticket, loss, rho = run.column("ticket"), run.series("eval_loss")[:, -1], run.series("rho_mean", 0)[:, -1]
    reset, redrawn, full = (np.log10(loss[ticket == kind]) for kind in ("reset", "redrawn", "full"))
    assert (reset < redrawn).mean() > 0.6, (reset, redrawn)
    assert np.median(full) < np.median(redrawn) - 1, (full, redrawn)
    assert rho[ticket == "reset"].mean() > rho[ticket == "redrawn"].mean() + 0.05, rho


def cifar(run: Run) -> None:
    """Wider students match better and come closer to the teacher's outputs, and both classify the images."""
    rho, loss, multiple = layers(run).mean(axis=1), run.series("eval_loss"), run.column("multiple")
    by_width = np.stack([rho[multiple == k][:, [0, -1]].mean(axis=0) for k in np.unique(multiple)])
    assert (np.diff(by_width, axis=1) > 0.04).all() and (np.diff(by_width[:, 1]) > 0.03).all(), by_width
    by_seed = np.stack([loss[multiple == k, -1] for k in np.unique(multiple)])
    assert (np.diff(by_seed, axis=0) < 0).all() and (loss[:, -1] < 0.7 * loss[:, 0]).all(), by_seed
    accuracy, teacher = run.series("accuracy")[:, -1], run.series("teacher_accuracy")[:, -1]
    assert (np.minimum(accuracy, teacher) > 0.2).all(), (accuracy, teacher)


def cifar_luck(run: Run) -> None:
    """Correlations grow in every setting, and students are about as accurate as their teachers, or more accurate."""
    rho = np.nanmean(layers(run)[..., [0, -1]], axis=1)
    kind, norm = run.column("network_kind"), run.column("norm")
    grown = {
        (one, other): np.diff(rho[(kind == one) & (norm == other)]).mean()
        for one in ("fc", "cnn")
        for other in ("none", "after")
    }
    assert all(more > (0.15 if one == "fc" else 0.02) for (one, _), more in grown.items()), grown
    accuracy, teacher = run.series("accuracy")[:, -1], run.series("teacher_accuracy")[:, -1]
    assert (teacher > 0.2).all() and (accuracy > teacher - 0.05).all(), (accuracy, teacher)


def bn_bias(run: Run) -> None:
    """Most shifts, which start at 0, end negative; in the top layer nearly all do, and far from 0."""
    layer, shift = run.nodes["layer"].to_numpy(), run.nodes["shift"].to_numpy()
    top = shift[layer == layer.max()]
    assert (shift < 0).mean() > 0.55, shift
    assert (top < 0).mean() > 0.8 and np.median(top) < -0.3, top


def exact_information(run: Run) -> dict[str, float]:
    """Information of the networks of one seed by quadrature, by setting."""
    found = results(run)
    return dict(zip(found["setting"], found["information"], strict=True))


def split_normal(run: Run) -> None:
    """Codes have the information that is asked for, and those of M = 0 and of the plain autoencoder have none."""
    nats = exact_information(run)
    assert max(nats["M = 0, C = 1"], nats["β = 1"]) < 0.05, nats
    assert abs(nats["M = 0.6, C = 1"] - 0.6) < 0.1 and abs(nats["M = 1.2, C = 1"] - 1.2) < 0.1, nats


def ten_labels(run: Run) -> None:
    """Codes of labels collapse or have the information asked for; a resampling encoder is nearer to the posterior."""
    nats = exact_information(run)
    assert nats["M = 0, C = 1"] < 0.1 and nats["β = 1"] < 0.3, nats
    assert abs(nats["M = 1, C = 1"] - 1) < 0.15 and nats["M = 2.303, C = 1"] > 1.25, nats
    divergence = results(run).set_index("setting")["posterior_kl"]
    assert divergence["M = 2.303, C = 1, k = 5"] < divergence["M = 2.303, C = 1"] / 2, divergence


def movie_sentences(run: Run) -> None:
    """Codes of sentences have no information at M = 0, and more where more is asked for."""
    low, high = (by_setting(run, "information", end) for end in ("low", "high"))
    assert high["M = 0"] < 0.5 and low["M = 1.5"] > 1 and low["M = 3"] > high["M = 1.5"], (low, high)


CHECKS: dict[str, Callable[[Run], None]] = {
    "deep": deep,
    "deep-samples": deep_samples,
    "gaus": gaus,
    "over-parameterization": over_parameterization,
    "lottery": lottery,
    "cifar": cifar,
    "cifar-luck": cifar_luck,
    "bn-bias": bn_bias,
    "split-normal": split_normal,
    "ten-labels": ten_labels,
    "movie-sentences": movie_sentences,
}
ON_IMAGES = ("cifar", "cifar-luck", "bn-bias")
OF_CODES = ("split-normal", "ten-labels", "movie-sentences")


def marks(name: str) -> list[pytest.MarkDecorator]:
    """Run studies on images only if the images are there."""
    return [needs_data] * (name in ON_IMAGES)


@pytest.mark.deep
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in CHECKS])
def test_a_quick_run_shows_the_main_result_of_its_study(name, tmp_path):
    # As users run it: types and shapes are checked in tiny runs, where that takes seconds and not a quarter of an hour.
    understudy("run", name, "--quick", "--out", tmp_path, cwd=tmp_path, process=True)
    (folder,) = (tmp_path / name).iterdir()
    page = (folder / "report.html").read_text(encoding="utf-8")
    headline = split_headline((folder / "headline.txt").read_text(encoding="utf-8"))
    plain = unescape(re.sub(r"</?abbr[^>]*>", "", page))  # terms are explained where they are first used
    assert all(part in plain for part in headline)
    drawn = sorted((folder / "figures").iterdir())
    assert {path.suffix for path in drawn} >= {".pdf", ".svg"}
    assert all(f"figures/{path.name}" in page for path in drawn)
    run = Run(folder)
    assert run.networks["diverged_at"].null_count == run.networks.num_rows
    assert run.metrics.num_rows
    assert name in OF_CODES or run.nodes.num_rows
    CHECKS[name](run)
