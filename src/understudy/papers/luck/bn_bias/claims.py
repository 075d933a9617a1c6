"""Claim D10: most BatchNorm shifts are negative in the upper layers (Tian et al. 2019, figs 6, 18)."""

from understudy.claims import Claims, Verdict
from understudy.papers.luck.bn_bias.study import BatchNormBias
from understudy.store import Run

HALF = 0.5

claims = Claims(fixed="network layers train epochs batch")


@claims.claim(
    "D10",
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
