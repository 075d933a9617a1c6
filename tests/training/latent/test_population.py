"""Populations of models with latent codes: against a plain loop, alone and together, interrupted, diverged."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from support import code_training as small
from understudy import UserError
from understudy.nets.latent.model import LatentModel
from understudy.training.latent.history import CURVES
from understudy.training.latent.objective import CodeObjective
from understudy.training.latent.plan import CodeNetwork, CodePlan


@pytest.fixture(scope="module")
def whole():
    return small.train(on_probe=small.features)


@pytest.fixture(scope="module")
def whole_continuous():
    return small.train(build=small.continuous, draw=small.numbers)


def same(one, other, at=0, of=0):
    """Whether a network of one population has the bits of a network of another."""
    ours, theirs = one.models[at].state_dict(), other.models[of].state_dict()
    curves = all(
        torch.equal(one.history.curves[name][at].nan_to_num(), other.history.curves[name][of].nan_to_num())
        for name in CURVES
    )
    return curves and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
@pytest.mark.parametrize("of", range(len(small.NETWORKS)))
def test_each_network_is_that_of_the_plain_loop(whole, whole_continuous, kind, of):
    trained = whole if kind == "discrete" else whole_continuous
    how = {"build": small.discrete, "draw": small.classes}
    if kind == "continuous":
        how = {"build": small.continuous, "draw": small.numbers}
    model, rows = small.reference(small.NETWORKS[of], small.PLAN, **how)
    for name, wanted in model.state_dict().items():
        torch.testing.assert_close(trained.models[of].state_dict()[name], wanted, rtol=2e-4, atol=2e-5)
    for name, column in (("elbo", 0), ("information", 1)):
        curve = trained.history.curves[name][of]
        assert curve[0].isnan()  # the probe before the first step
        for at, (first, last) in enumerate(zip(small.PLAN.probes, small.PLAN.probes[1:], strict=False), 1):
            torch.testing.assert_close(curve[at], rows[first:last, column].mean(), rtol=1e-4, atol=1e-4)


@given(st.lists(st.integers(0, len(small.NETWORKS) - 1), min_size=1, max_size=4, unique=True), st.booleans())
def test_a_network_has_the_same_bits_alone_and_together(which, continuous):
    how = {"build": small.continuous, "draw": small.numbers} if continuous else {}
    plan = replace(small.PLAN, steps=6, probes=(3,))
    together = small.train(plan, **how)
    some = small.train(replace(plan, networks=tuple(plan.networks[i] for i in which)), **how)
    for at, i in enumerate(which):
        assert same(some, together, at, i)


def test_rows_that_cannot_be_aligned_are_computed_alone_with_the_same_bits():
    plan = replace(small.PLAN, steps=6, probes=(), batch=10, samples=7)
    together = small.train(plan)
    one = small.train(replace(plan, networks=plan.networks[1:2]))
    assert same(one, together, 0, 1)


def test_an_interrupted_training_goes_on_with_the_same_bits(whole, tmp_path):
    def stop(step, _):
        if step == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small.train(folder=tmp_path, say=stop, on_probe=small.features)
    again = small.train(folder=tmp_path, on_probe=small.features)
    assert all(same(again, whole, i, i) for i in range(len(small.NETWORKS)))
    assert again.history.measures.keys() == whole.history.measures.keys()
    for key, values in whole.history.measures.items():
        assert torch.equal(again.history.measures[key], values)


@pytest.mark.parametrize("when", [("step", "10"), ("rename", "1"), ("rename", "3")])
def test_a_killed_training_goes_on_with_the_same_bits(whole, tmp_path, when):
    killed = subprocess.run([sys.executable, small.__file__, str(tmp_path), *when], capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    again = small.train(folder=tmp_path, on_probe=small.features)
    assert all(same(again, whole, i, i) for i in range(len(small.NETWORKS)))
    assert [each.name for each in tmp_path.iterdir()] == ["state.safetensors"]


def test_a_finished_training_is_only_read(whole, tmp_path):
    small.train(folder=tmp_path, on_probe=small.features)

    def draw(seed, step, count):
        assert step == 0  # the example by which modules are validated
        return small.classes(seed, step, count)

    again = small.train(folder=tmp_path, draw=draw)
    assert all(same(again, whole, i, i) for i in range(len(small.NETWORKS)))


def test_a_diverged_network_is_marked_and_the_others_go_on():
    plan = replace(small.PLAN, rates={"decoder": 1e-2}, networks=small.NETWORKS[:2])
    calm = small.train(plan, build=small.continuous, draw=small.numbers)

    def draw(seed, step, count):
        x = small.numbers(seed, step, count)
        return x * math.inf if (seed, step) == (2, 12) else x

    trained = small.train(plan, build=small.continuous, draw=draw)
    assert trained.history.diverged.tolist() == [0, 13]
    assert same(trained, calm)
    elbo = trained.history.curves["elbo"][1]
    assert elbo.isfinite().tolist() == [False, True, True, False, False, False]


def test_a_last_update_that_makes_weights_infinite_is_a_divergence():
    """The objective of the last step was computed before it, and is finite."""
    plan = replace(small.PLAN, steps=1, probes=(), rates={"decoder": 1e39}, networks=small.NETWORKS[:2])
    assert small.train(plan).history.diverged.tolist() == [1, 1]


def test_networks_with_other_settings_are_not_taken_from_a_folder(tmp_path):
    small.train(folder=tmp_path)
    with pytest.raises(UserError, match=r"state.safetensors: this is the state of other settings; choose another"):
        small.train(replace(small.PLAN, decayed=0.2), folder=tmp_path)


@pytest.mark.parametrize("damage", ["truncated", "version", "text"])
def test_a_damaged_state_is_refused(tmp_path, damage):
    from safetensors.torch import save_file

    small.train(replace(small.PLAN, steps=2, probes=()), folder=tmp_path)
    file = tmp_path / "state.safetensors"
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "version":
        save_file({}, file, {"understudy-latent-training": json.dumps({"version": 99})})
    else:
        file.write_text("state")
    with pytest.raises(UserError, match="remove the file to start over"):
        small.train(replace(small.PLAN, steps=2, probes=()), folder=tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"networks": ()}, "networks must have at least 1 network"),
        ({"steps": 0}, "steps must be a whole number of at least 1"),
        ({"samples": 0}, "samples must be"),
        ({"rates": {"decoder": 0.0}}, "rates must be a finite number above 0 for the decoder, got 0"),
        pytest.param(
            {"rates": {"decoders": 0.1}},
            "rates must name encoder, decoder or infer, got 'decoders'",
            marks=pytest.mark.wrong_shapes,
        ),
        ({"decayed": 1.5}, "decayed must be a share from 0 to 1, got 1.5"),
        ({"probes": (25,)}, "probes must be steps from 0 to 24, got 25"),
    ],
)
def test_plans_out_of_range(options, words):
    with pytest.raises(UserError, match=words):
        replace(small.PLAN, **options)


def test_what_networks_lack_is_refused():
    def without(network):
        return LatentModel(small.Table(), small.mlp(1, small.CLASSES))

    with pytest.raises(UserError, match="infer is missing, by which a target"):
        small.train(build=without)
    free = CodeNetwork(1, CodeObjective(free_bits=0.5), resamples=2)
    with pytest.raises(UserError, match="free_bits must be 0 with several codes"):
        small.train(CodePlan((free,), 2))
    variational = CodePlan((CodeNetwork(1, CodeObjective()),), 3, batch=16, samples=16)
    trained = small.train(variational, build=without)
    assert trained.history.curves["elbo"].isfinite().all()


def test_modules_that_vmap_cannot_stack_train_alone():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = small.mlp(1, small.CLASSES)

        def forward(self, z):
            return self.inner(z) if z.sum().item() > -1e9 else z

    def build(network):
        torch.manual_seed(0)
        return LatentModel(small.Table(), Branching(), small.Table())

    plan = CodePlan((CodeNetwork(1, CodeObjective(target=0.5)),), 3, batch=16, samples=16)
    with pytest.raises(UserError, match="cannot be stacked"):
        small.train(plan, build=build)
    assert small.train(plan, build=build, side_by_side=False).history.diverged.tolist() == [0]
