"""Claims D5, D7 and D8: correlations, ranks of the final winners, H* and β* (Tian et al. 2019, figs 8, 10, 11)."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import xarray as xr

from understudy.claims import Claims, Verdict, every, median, number, ordered
from understudy.lab.matrices import MATRICES, Modulation, measure_modulation
from understudy.lab.study import ranked
from understudy.papers.luck.gaus.study import Gaus
from understudy.store import Run

NAMES = {"fc": "FC", "cnn": "CNN", "fc-small": "small FC"}
NORMS = {"none": "without BatchNorm", "after": "with BatchNorm"}
SMALL_RANK = 0.1
"""Largest mean rank that counts as small: the first tenth, where chance gives 0.5. The paper gives no number."""
_FIRST_EPOCH = 1_562
"""Steps of the first epoch of the released code: 100,000 samples in batches of 64."""
_LEAST_STEPS = 8_000
"""Steps of training from which claims are decided; the paper does not state how long its figures train."""


class GausSetting(NamedTuple):
    """Networks that differ in their seed only."""

    kind: str
    norm: str
    data: str = "infinite"

    @property
    def words(self) -> str:
        return f"{NAMES[self.kind]} {NORMS[self.norm]}" + (", finite data" if self.data == "finite" else "")


def curves(run: Run, setting: GausSetting, metric: str = "rho_mean") -> xr.DataArray:
    """A metric by seed, layer and epoch: NaN for networks that diverged, empty if the setting was not run."""
    return run.array(metric, "seed layer epoch", **setting._asdict())


def _compared(run: Run, *settings: GausSetting) -> list[xr.DataArray] | None:
    """Mean best correlations of each setting; None if in no seed networks of all of them did not diverge."""
    found = [curves(run, setting) for setting in settings]
    seeds = [rho["seed"][rho.notnull().any(("layer", "epoch"))].to_numpy().tolist() for rho in found]
    return found if set.intersection(*map(set, seeds)) else None


def first_epoch(study: Gaus) -> int:
    """The first epoch with recorded ranks after as many steps as the first epoch of the released code; 1 if none."""
    return next((e for e in ranked(study.epochs)[:-1] if e * study.steps >= _FIRST_EPOCH), 1)


def early_rank(study: Gaus, run: Run, setting: GausSetting) -> float:
    """Mean rank of the final winners at the first epoch, averaged over layers, median over seeds."""
    rank = curves(run, setting, "mean_rank").sel(epoch=first_epoch(study)).mean("layer", skipna=False)
    return float(np.nanmedian(rank))


def final(rho: xr.DataArray) -> np.ndarray:
    """[seed]: mean best correlation at the end, averaged over layers."""
    return rho.isel(epoch=-1).mean("layer", skipna=False).to_numpy()


def speed(rho: xr.DataArray) -> np.ndarray:
    """[seed]: mean best correlation averaged over layers and all epochs: the faster it rises, the higher."""
    return rho.isel(epoch=slice(1, None)).mean(("layer", "epoch"), skipna=False).to_numpy()


def late_gain(rho: xr.DataArray) -> np.ndarray:
    """[seed]: gain of the mean best correlation in the second half of training, averaged over layers."""
    mean = rho.mean("layer", skipna=False)
    return (mean.isel(epoch=-1) - mean.isel(epoch=mean.sizes["epoch"] // 2)).to_numpy()


claims = Claims(
    free="seeds dtype device networks norm data epochs steps train",
    when=lambda study: study.epochs * study.steps >= _LEAST_STEPS,
)
_SETTINGS = tuple(GausSetting(kind, norm) for kind in ("fc", "cnn") for norm in NORMS)


@claims.claim(
    "D5",
    "{setting.words}, correlation",
    statement="mean best correlation is higher at the end than before training at every layer of every network, and at "
    "the end highest in the lowest layer (medians over seeds)",
    paper="grows; lowest layer best",
    values_are="least rise of a layer, per network",
    cases={"setting": _SETTINGS},
)
def correlation_grows(study: Gaus, run: Run, setting: GausSetting) -> Verdict | None:
    rho = curves(run, setting).dropna("seed", how="all").to_numpy()
    if not rho.size:
        return None
    start, end = (np.median(rho[..., i], axis=0) for i in (0, -1))
    rise = (rho[..., -1] - rho[..., 0]).min(axis=1)
    words = f"from {_row(start)} to {_row(end)}, layers 1 to {len(end)}"
    return every(rise, above=0.0, say=words) & every(end[0] - end[1:], above=0.0, say="")


@claims.claim(
    "D5",
    "{setting.words}, rank",
    statement="mean rank of the final winners after {early_steps:,} steps, averaged over layers: at most "
    f"{SMALL_RANK}, where chance gives 0.5, and lower than before training (medians over seeds)",
    paper="already small after the first epoch",
    cases=lambda study, run: [{"setting": s, "early_steps": first_epoch(study) * study.steps} for s in _SETTINGS],
)
def winners_lead_early(study: Gaus, run: Run, setting: GausSetting, early_steps: int) -> Verdict | None:
    rank = curves(run, setting, "mean_rank").dropna("seed", how="all")
    if not rank.size:
        return None
    before, after = (rank.sel(epoch=epoch).to_numpy() for epoch in (0, first_epoch(study)))
    small = median(after.mean(axis=1), at_most=SMALL_RANK, say="{median:.3f}")
    falls = ordered([before.mean(axis=1), after.mean(axis=1)], ("before", "after"), rising=False)
    by_layer = f"by layer {_row(np.median(after, axis=0))}, before training {_row(np.median(before, axis=0))}"
    return (small & falls).say(f"{small.measured}; {by_layer}")


@claims.claim(
    "D5",
    "CNN, BatchNorm",
    statement="CNN: mean best correlation at the end, averaged over layers, is higher with BatchNorm than without "
    "(median over seeds of the difference)",
    paper="BatchNorm better for the CNN",
)
def batchnorm_helps_the_cnn(study: Gaus, run: Run) -> Verdict | None:
    normed, plain = GausSetting("cnn", "after"), GausSetting("cnn", "none")
    if (verdict := _higher(run, normed, plain, final)) is None:
        return None
    ranks = " against ".join(f"{early_rank(study, run, setting):.3f}" for setting in (normed, plain))
    return verdict.also(f"mean rank early {ranks}")


def _higher(
    run: Run, first: GausSetting, second: GausSetting, measure: Callable[[xr.DataArray], np.ndarray]
) -> Verdict | None:
    """Decide whether the median over seeds of the difference between two settings is above 0."""
    if (found := _compared(run, first, second)) is None:
        return None
    ahead, behind = map(measure, found)
    lead = _finite(ahead - behind)
    return median(lead, above=0.0, say=f"{_against(ahead, behind)}, higher in {_count(lead)}")


_SPEED = "mean best correlation, averaged over layers and epochs"


@claims.claim(
    "D7",
    "small against large",
    statement=f"{_SPEED}, is higher for the small teacher than for the large one (median over seeds of the difference)",
    paper="small converges faster",
)
def small_is_faster(study: Gaus, run: Run) -> Verdict | None:
    return _higher(run, GausSetting("fc-small", "none"), GausSetting("fc", "none"), speed)


@claims.claim(
    "D7",
    "small, BatchNorm",
    statement=f"small teacher: {_SPEED}, is higher without BatchNorm (median over seeds of the difference)",
    paper="hurt by BatchNorm",
)
def batchnorm_hurts_the_small(study: Gaus, run: Run) -> Verdict | None:
    small, large = (
        _higher(run, GausSetting(kind, "none"), GausSetting(kind, "after"), speed) for kind in ("fc-small", "fc")
    )
    beside = {"large teacher": large.say(f"higher without in {_count(np.array(large.values))}")} if large else {}
    return small and small.with_variants(beside)


@claims.claim(
    "D7",
    "finite data, {norm_words}",
    statement="CNN {norm_words}: the gain of the mean best correlation in the second half of training, averaged over "
    "layers, with finite data is at most half of that with fresh data, and the end is lower (medians over seeds)",
    paper="finite data stalls",
    values_are="gain with finite data as a share of that with fresh data, per seed",
    cases=lambda study, run: [{"norm": norm, "norm_words": words} for norm, words in NORMS.items()],
)
def finite_data_stalls(study: Gaus, run: Run, norm: str, norm_words: str) -> Verdict | None:
    if (found := _compared(run, GausSetting("cnn", norm, "finite"), GausSetting("cnn", norm))) is None:
        return None
    gains, ends = ([measure(rho) for rho in found] for measure in (late_gain, final))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = _finite(gains[0] / gains[1])
    half = median(share, at_most=0.5, n=int(np.isfinite(gains).all(axis=0).sum()))
    lower = ordered(ends, ("finite", "fresh"))
    words = f"adds {_against(gains[0], gains[1], '.4f')}, ends at {_against(ends[0], ends[1])}"
    return (half & median(gains[1], above=0.0) & lower).say(words)


@lru_cache(maxsize=4)
def modulated(study: Gaus, run: Run, setting: GausSetting) -> Modulation | None:
    """H* and β* of all networks of a setting that did not diverge; for convolutional ones, of the first only.

    Samples of convolutional networks have many positions.
    """
    some = run.select(**setting._asdict())
    which = some.index[some.alive][: 1 if setting.kind == "cnn" else None]
    if not len(which):
        return None
    return measure_modulation(run, which, lambda: study.source(setting.kind, setting.data))


def _diagonals(study: Gaus, run: Run) -> dict[str, np.ndarray]:
    """Diagonal shares [network, layer, matrix, time] of the fully connected settings, FC without BatchNorm first.

    Empty if the run does not have this setting, on which claims are decided.
    """
    settings = [GausSetting(kind, norm) for kind in ("fc", "fc-small") for norm in NORMS]
    found = {setting.words: modulated(study, run, setting) for setting in settings if _compared(run, setting)}
    known = {words: each.diagonal for words, each in found.items() if each is not None}
    return known if settings[0].words in known else {}


@claims.claim(
    "D8",
    "grows",
    statement="students reordered by match: the share of the squared entries of H* and of β* on the diagonal grows "
    "from before training to the end at every layer (medians over seeds)",
    paper="diagonal mass grows",
    values_are="least growth of a layer and matrix, per network",
)
def diagonals_grow(study: Gaus, run: Run) -> Verdict | None:
    def test(diagonal: np.ndarray) -> Verdict:
        growth = diagonal[..., 1] - diagonal[..., 0]
        words = f"least growth of a layer {number(np.median(growth, axis=0).min(), '.3f')}"
        return median(growth, above=0.0, say=words).show(growth.min(axis=(1, 2)), low=0.0)

    if not (diagonals := _diagonals(study, run)):
        return None
    decided, *others = diagonals
    before, after = np.moveaxis(np.median(diagonals[decided], axis=0), -1, 0)
    ranges = "; ".join(f"{name} from {_row(before[:, i])} to {_row(after[:, i])}" for i, name in enumerate(MATRICES))
    verdict = test(diagonals[decided]).say(f"{ranges}, layers 1 to {len(before)}")
    return verdict.with_variants({words: test(diagonals[words]) for words in others})


@claims.claim(
    "D8",
    "H* against β*",
    statement="the diagonal's share grows more in H* than in β*, averaged over layers (median over seeds of the "
    "difference)",
    paper="more in H* than in β*",
)
def more_in_h(study: Gaus, run: Run) -> Verdict | None:
    growths = {words: (d[..., 1] - d[..., 0]).mean(axis=1) for words, d in _diagonals(study, run).items()}
    if not growths:
        return None
    found = {words: each[:, 0] - each[:, 1] for words, each in growths.items()}
    verdicts = {words: median(more, above=0.0, say=f"more in {_count(more)}") for words, more in found.items()}
    decided = next(iter(verdicts))
    verdict = verdicts.pop(decided)
    by = _row(np.median(growths[decided], axis=0))
    return verdict.say(f"by {by} in H*, β*; {verdict.measured}").with_variants(verdicts)


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _against(first: np.ndarray, second: np.ndarray, digits: str = ".3f") -> str:
    """The medians over seeds of two settings."""
    return " against ".join(number(np.nanmedian(values), digits) for values in (first, second))


def _count(differences: np.ndarray) -> str:
    """How many differences are above 0: `4 of 5`."""
    return f"{(differences > 0).sum()} of {len(differences)}"


def _row(values: np.ndarray) -> str:
    return ", ".join(number(v, ".3f") for v in values)
