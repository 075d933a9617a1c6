"""Claim D10: most BatchNorm shifts are negative in the upper layers (Tian et al. 2019, figs 6, 18)."""

from pathlib import Path

import numpy as np

from understudy.claims import Claims, Verdict
from understudy.papers.luck.bn_bias.study import BatchNormBias
from understudy.store import Run

HALF = 0.5

claims = Claims(fixed="layers train epochs batch", tuned_on="")


@claims.claim(
    "D10",
    when=lambda study: not study.network,
    statement="share of negative BatchNorm shifts in ConvNets with four layers, trained on CIFAR-10 with BatchNorm "
    "before each ReLU: above one half in each of the upper two layers, mean over networks",
    paper="most are negative, in particular in the top layers (VGG on ImageNet)",
    values_are="share of negative shifts in the upper two layers, per network",
)
def mostly_negative(study: BatchNormBias, run: Run) -> Verdict:
    share = run.array("negative_shifts", "network layer")
    upper = share.isel(layer=slice(share.sizes["layer"] // 2, None))
    words = "layers 1 to 4: " + ", ".join(f"{mean:.0%}" for mean in share.mean("network").to_numpy())
    holds = bool((upper.mean("network") > HALF).all())
    return Verdict(holds, words, share.sizes["network"]).show(upper, low=HALF)


@claims.claim(
    "D10",
    "{file}",
    when=lambda study: bool(study.network),
    statement="more than half of the BatchNorm shifts in {file} are negative, and a larger share of them in the upper "
    "half of its layers than in the lower half",
    paper="most are negative, in particular in the top layers (VGG on ImageNet)",
    values_are="share of negative shifts, per layer",
    tuned_on="the same file",
    cases=lambda study, run: [{"file": Path(study.network).name}],
)
def mostly_negative_in_a_file(study: BatchNormBias, run: Run, file: str) -> Verdict | None:
    layer, negative = run.nodes["layer"].to_numpy(), run.nodes["shift"].to_numpy() < 0
    if (layers := int(layer.max()) + 1) < 2:
        return None
    above = layer >= layers // 2
    whole, lower, upper = (float(np.mean(some)) for some in (negative, negative[~above], negative[above]))
    share = run.array("negative_shifts", "network layer").mean("network").to_numpy()
    words = (
        f"{whole:.0%} of {len(negative):,}; {lower:.0%} in the lower half, {upper:.0%} in the upper half; most in "
        f"{(share > HALF).sum()} of {layers} layers"
    )
    return Verdict(whole > HALF and upper > lower, words, run.networks.num_rows).show(share, low=HALF)
