"""`us.information`: which method is used, what is reported beside the information, and errors."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import understudy as us
from support.code_channels import Rows, bins, channel_information, gaussian_channel, linear, random_network
from understudy import UserError
from understudy.nets.latent.model import LatentModel

X = torch.randn(50, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def measure(model, x, **options):
    return us.information(model, x, device="cpu", **options)


def test_a_number_is_measured_by_quadrature():
    found = measure(gaussian_channel(), X)
    assert found.method == "quadrature"
    assert found.notes == ()
    assert found.low <= found.value <= found.high <= found.low + 2e-6
    assert found.value == pytest.approx(channel_information(), abs=1e-9)
    assert found.bound == pytest.approx(found.value, abs=1e-6)
    assert str(found).splitlines()[0].startswith("information    0.753772 nats (quadrature, numerical error")
    assert str(found).splitlines()[1].startswith("infomax bound  0.753772 ± ")


def test_classes_are_measured_by_quadrature():
    found = measure(bins(4), torch.arange(4))
    assert found.method == "quadrature"
    assert found.value == pytest.approx(math.log(4), abs=1e-6)
    assert found.bound is found.bound_error is None
    assert "infomax bound" not in str(found)


def test_longer_codes_and_rows_are_estimated():
    long_code = measure(gaussian_channel(coordinates=2), X.expand(-1, 2), samples=300, codes=64)
    assert long_code.method == "nested Monte Carlo"
    assert long_code.low <= channel_information(coordinates=2) <= long_code.high
    assert "too small on average" in long_code.notes[0]
    assert "95% interval" in str(long_code)
    assert str(long_code).endswith(f"({long_code.notes[-1]})")
    rows = LatentModel(linear([[0.0, 0.0]] * 2, [0.0, 0.0]), linear([[1.0], [1.0], [0.0], [0.0]], [0.0] * 4))
    found = measure(rows, torch.zeros(2, 2), samples=500, codes=64)
    assert found.method == "nested Monte Carlo"
    assert found.low <= math.log(3) / 2 <= found.high  # two numbers have the snr of their mean, 2


def test_what_quadrature_does_not_resolve_is_estimated_and_said():
    found = measure(gaussian_channel(1e5, 1.0), X, samples=300, codes=64)
    assert found.method == "nested Monte Carlo"
    assert found.low <= channel_information(1e5, 1.0) <= found.high
    assert "Quadrature" in found.notes[0] and "the tolerance is 10⁻⁶" in found.notes[0]


def test_a_wide_interval_is_explained():
    model = gaussian_channel(4.0, 1.0, coordinates=2, infer=False)
    by_prior = LatentModel(linear([[0.0] * 2] * 4, [0.0] * 4), model.decoder)
    found = measure(by_prior, X.expand(-1, 2), samples=200, codes=30)
    assert found.notes[-1] == "More than half of the interval is bias: more codes than 30 make it narrower."
    assert "bias:" not in measure(model, X.expand(-1, 2), samples=200, codes=30).notes[-1]


def test_divergence_and_active_units_by_hand():
    """Means 0, 3a, 0.05a for a = ±1, deviations 1, 1, 2: KL ½ (9 + 0.0025 + 4 − 1 − log 4); variances 0, 9, 0.0025."""
    encoder = linear([[0.0], [3.0], [0.05], [0.0], [0.0], [0.0]], [0.0, 0.0, 0.0, 0.0, 0.0, math.log(4)])
    model = LatentModel(encoder, linear([[0.0] * 3] * 2, [0.0, 0.0]))
    found = measure(model, torch.tensor([[1.0], [-1.0]]), samples=10, codes=10)
    assert found.divergence == pytest.approx((9 + 0.0025 + 4 - 1 - math.log(4)) / 2)
    assert found.active_units == 1


@pytest.mark.parametrize(("spread", "active"), [(0.0999, 0), (0.1001, 1)])
def test_a_unit_is_active_above_a_variance_of_one_hundredth(spread, active):
    model = LatentModel(Rows([[spread, 0.0], [-spread, 0.0]]), linear([[0.0]] * 2, [0.0] * 2), likelihood="categorical")
    assert measure(model, torch.tensor([0, 1, 1, 0])).active_units == active


def test_resampled_codes_are_said():
    found = measure(gaussian_channel(resamples=3), X)
    assert found.notes == (
        "KL term and active units are those of one code of the encoder, without the choice among 3.",
    )


class Autoencoder(nn.Module):
    """Modules of a user's: convolutions, BatchNorm and dropout, on images."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(48, 4)
        )
        self.decoder = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.Unflatten(1, (1, 4, 4)))


def test_any_modules_are_measured_in_evaluation_mode_and_left_as_they_are():
    torch.manual_seed(0)
    own = Autoencoder()
    before = {name: each.clone() for name, each in own.state_dict().items()}
    model = LatentModel(own.encoder, own.decoder, likelihood="bernoulli")
    x = (torch.rand(20, 1, 4, 4) > 0.5).numpy()
    found = measure(model, x, samples=50, codes=20)
    assert found == measure(model.eval(), x, samples=50, codes=20)
    assert found != measure(model, x, samples=50, codes=20, seed=1)
    assert own.training and all(torch.equal(each, before[name]) for name, each in own.state_dict().items())
    assert found.low < found.value < found.high
    with pytest.raises(UserError, match="latent is not known yet"):
        _ = model.latent


class OnlyFloat32(nn.Linear):
    def forward(self, x):
        return super().forward(x.float())


def test_modules_that_do_not_take_float64_are_measured_in_their_precision():
    torch.manual_seed(0)
    model = LatentModel(OnlyFloat32(1, 2), nn.Linear(1, 2))
    found = measure(model, X)
    assert found.method == "quadrature"
    assert found.notes[0].startswith("Computed in float32, since the modules do not take float64 (encoder fails on")


def test_data_may_be_arrays_and_of_other_precision():
    model = gaussian_channel()
    wanted = measure(model, X)
    assert measure(model, X.numpy()) == wanted
    assert measure(model.float(), np.asarray(X)).value == pytest.approx(wanted.value, abs=1e-6)
    assert measure(bins(3), torch.arange(3, dtype=torch.uint8)).value == measure(bins(3), torch.arange(3)).value


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": 1}, "samples must be at least 2, which a standard error needs, got 1"),
        ({"samples": 0}, "samples must be a whole number of at least 1, got 0"),
        ({"codes": 0}, "codes must be a whole number of at least 1, got 0"),
        ({"tolerance": 0.0}, "tolerance must be a finite number above 0, got 0"),
        ({"tolerance": math.nan}, "tolerance must be a finite number above 0, got nan"),
        ({"seed": -1}, "seed must be between 0 and 2.63 − 1, got -1"),
        ({"device": "tpu"}, "device must be auto, cpu or cuda, got 'tpu'"),
    ],
)
def test_options_out_of_range(options, words):
    with pytest.raises(UserError, match=words):
        us.information(gaussian_channel(), X, **{"device": "cpu", **options})


@pytest.mark.wrong_shapes
def test_a_plain_module_is_no_latent_model():
    with pytest.raises(
        UserError, match=r"model must be a LatentModel, .* got a Linear; give LatentModel\(encoder, decoder\)"
    ):
        us.information(nn.Linear(1, 2), X)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (X[:1], "data must have at least two rows, between which posterior means vary, got 1"),
        (X[:0], "data must have at least one row"),
        (torch.tensor([[1.0], [math.inf]]), "data must be finite numbers"),
        (
            X[:, 0],
            r"data must have an axis of rows and one of numbers, got the shape \[50\]; add one with x\[:, None\]",
        ),
        (X.expand(-1, 3), r"encoder fails on a tensor of shape \[2, 3\] and torch.float64 \(mat1 and mat2"),
    ],
)
def test_data_that_do_not_fit(x, words):
    with pytest.raises(UserError, match=words):
        measure(gaussian_channel(), x)


@pytest.mark.parametrize(
    ("model", "x", "words"),
    [
        (bins(3), torch.tensor([0, 1, 2, 0, 3]), "data must be classes from 0 to 2, .* got 0 to 3"),
        (bins(3), torch.zeros(4), r"data must be whole numbers for the likelihood categorical, .*\.long\(\)"),
        (
            LatentModel(nn.Linear(1, 2), nn.Linear(1, 1), likelihood="bernoulli"),
            torch.tensor([[0.0], [1.0], [0.5]]),
            "data must be 0 or 1 for the likelihood bernoulli, got 0 to 1; round them, or",
        ),
        (
            LatentModel(nn.Linear(1, 1), nn.Linear(1, 2)),
            X,
            r"encoder must return as many means as log variances of codes, 1 for each row, got \[0\]",
        ),
        (
            LatentModel(nn.Linear(1, 2), nn.Linear(1, 1)),
            X,
            r"decoder must return means and log variances of the shape of the data, \[1\] for each row, got \[0\]",
        ),
        (
            LatentModel(nn.Linear(1, 2), nn.Linear(2, 2)),
            X,
            r"decoder fails on a tensor of shape \[2, 1\] and torch.float32 \(mat1",
        ),
        (
            LatentModel(nn.Linear(1, 2), nn.Flatten(0, 1), likelihood="bernoulli"),
            torch.zeros(3, 1),
            r"\[1\] for each row, got the shape \[2\] for 2 codes|got \[\]",
        ),
        (
            LatentModel(linear([[1.0], [0.0]], [math.nan, 0.0]), nn.Linear(1, 2).double()),
            X,
            "encoder returns codes that are not finite",
        ),
        (
            LatentModel(linear([[0.0]] * 4, [0.0] * 4), linear([[0.0, 0.0]] * 2, [0.0, math.nan])),
            X,
            "model has densities that are not finite",
        ),
    ],
)
def test_models_that_do_not_fit(model, x, words):
    with pytest.raises(UserError, match=words):
        measure(model, x, samples=10, codes=10)


@pytest.mark.wrong_shapes
def test_what_is_no_data():
    with pytest.raises(UserError, match="data must be a tensor or an array of numbers, got a list"):
        measure(gaussian_channel(), [["a"]])
    with pytest.raises(UserError, match=r"data must be real numbers, got torch\.complex64"):
        measure(gaussian_channel(), torch.zeros(2, 1, dtype=torch.complex64))


def test_a_gpu_is_asked_for():
    if torch.cuda.is_available():
        assert measure(random_channel(), X).value == pytest.approx(us.information(random_channel(), X).value, abs=1e-6)
    else:
        with pytest.raises(UserError, match="cuda needs a CUDA GPU"):
            us.information(gaussian_channel(), X, device="cuda")


def random_channel():
    return LatentModel(random_network(0, 1, 2), random_network(1, 1, 2))
