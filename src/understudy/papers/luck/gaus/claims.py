"""Claims D5, D7, D8 and L5: correlations, ranks of the final winners, H* and β* (Tian et al. 2019, figs 8, 10, 11)."""

from collections.abc import Callable
from functools import lru_cache, reduce
from operator import and_
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from understudy.claims import Claims, Verdict, every, mean_above, median, number
from understudy.lab.matrices import MATRICES, Modulation, measure_modulation
from understudy.lab.study import ranked
from understudy.papers.luck.gaus.study import Gaus
from understudy.papers.luck.shared import ERRORS, LEARNED, LEAST_STEPS, standard_errors
from understudy.store import Run

NAMES = {"fc": "FC", "cnn": "CNN", "fc-small": "small FC"}
NORMS = {"none": "without BatchNorm", "after": "with BatchNorm"}
DOMINANT = 3.0
"""Least ratio of the mean entry on the diagonal of a diagonally dominant matrix to the mean size of the others."""
GROWTH = 4
"""Standard errors by which correlations must grow."""
_FIRST_EPOCH = 1_562
"""Steps of the first epoch of the released code: 100,000 samples in batches of 64."""


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
    """Mean best correlation at the end, averaged over layers, [seed]."""
    return rho.isel(epoch=-1).mean("layer", skipna=False).to_numpy()


def speed(rho: xr.DataArray) -> np.ndarray:
    """Mean best correlation averaged over layers and all epochs, [seed]: the faster it rises, the higher."""
    return rho.isel(epoch=slice(1, None)).mean(("layer", "epoch"), skipna=False).to_numpy()


def late_gain(rho: xr.DataArray) -> np.ndarray:
    """Gain of the mean best correlation in the second half of training, averaged over layers, [seed]."""
    mean = rho.mean("layer", skipna=False)
    return (mean.isel(epoch=-1) - mean.isel(epoch=mean.sizes["epoch"] // 2)).to_numpy()


claims = Claims(
    free="seeds dtype device networks norm data epochs steps train finite momentum cnn_lr cnn_norm_lr",
    tuned_on="rates of fully connected networks on seeds 1 to 3, which decide it",
)


def _as_released(study: Gaus) -> bool:
    """Whether a study trains by plain SGD for as many steps as the released code, at the default rates."""
    plain = type(study)()
    rates = all(getattr(study, name) == getattr(plain, name) for name in ("cnn_lr", "cnn_norm_lr"))
    return rates and study.momentum == 0 and study.epochs * study.steps >= LEAST_STEPS


_SETTINGS = tuple(GausSetting(kind, norm) for kind in ("fc", "cnn") for norm in NORMS)


@claims.claim(
    "D5",
    "{setting.words}, correlation",
    statement=f"mean best correlation rises by more than {GROWTH} standard errors at every layer, and ends highest in "
    f"the lowest layer, above {LEARNED:g} (means over seeds)",
    paper="grows; in the lowest layers it moves towards 1",
    values_are="mean best correlation of the lowest layer at the end, per network",
    cases={"setting": _SETTINGS},
    when=_as_released,
)
def correlation_grows(study: Gaus, run: Run, setting: GausSetting) -> Verdict | None:
    rho = curves(run, setting).dropna("seed", how="all").to_numpy()
    if not rho.size:
        return None
    start, end = rho[..., 0], rho[..., -1]
    grows = reduce(and_, (mean_above(rise, errors=GROWTH) for rise in (end - start).T))
    best = every(end.mean(axis=0)[0] - end.mean(axis=0)[1:], above=0.0)
    learned = every([end[:, 0].mean()], above=LEARNED)
    by = [number(standard_errors(rise), ".2g") for rise in (end - start).T]
    words = f"from {_row(start.mean(axis=0))} to {_row(end.mean(axis=0))}, layers 1 to {end.shape[1]}"
    return (grows & best & learned).say(f"{words}, by {', '.join(by)} standard errors").show(end[:, 0], low=LEARNED)


@claims.claim(
    "D5",
    "{setting.words}, rank",
    statement="mean rank of the final winners, averaged over layers: lower after {early_steps:,} steps, the first "
    f"epoch, than before training, by more than {ERRORS} standard errors",
    paper="good after the first epoch",
    values_are="by how much the mean rank falls, per network",
    cases=lambda study, run: [{"setting": s, "early_steps": first_epoch(study) * study.steps} for s in _SETTINGS],
    when=_as_released,
)
def winners_lead_early(study: Gaus, run: Run, setting: GausSetting, early_steps: int) -> Verdict | None:
    rank = curves(run, setting, "mean_rank").dropna("seed", how="all")
    if not rank.size:
        return None
    before, after = (rank.sel(epoch=epoch).to_numpy() for epoch in (0, first_epoch(study)))
    by_layer = f"by layer from {_row(before.mean(axis=0))} to {_row(after.mean(axis=0))}"
    words = f"from {number(before.mean(), '.3f')} to {number(after.mean(), '.3f')}"
    return mean_above((before - after).mean(axis=1), errors=ERRORS, say=words).also(by_layer)


@claims.claim(
    "D5",
    "CNN, BatchNorm",
    statement="CNN: mean best correlation at the end, averaged over layers, is higher with BatchNorm than without, by "
    f"more than {ERRORS} standard errors",
    paper="BatchNorm better for the CNN",
    values_are="by how much it is higher, per seed",
    when=_as_released,
)
def batchnorm_helps_the_cnn(study: Gaus, run: Run) -> Verdict | None:
    def test(kind: str) -> Verdict | None:
        normed, plain = GausSetting(kind, "after"), GausSetting(kind, "none")
        if (verdict := _higher(run, normed, plain, final)) is None:
            return None
        ranks = " against ".join(f"{early_rank(study, run, setting):.3f}" for setting in (normed, plain))
        return verdict.also(f"mean rank early {ranks}")

    cnn, fc = test("cnn"), test("fc")
    return cnn and cnn.with_variants({"FC": fc} if fc else {})


def _higher(
    run: Run, first: GausSetting, second: GausSetting, measure: Callable[[xr.DataArray], np.ndarray]
) -> Verdict | None:
    """Decide whether the mean over seeds of the difference between two settings is above 0."""
    if (found := _compared(run, first, second)) is None:
        return None
    ahead, behind = map(measure, found)
    lead = _finite(ahead - behind)
    return mean_above(lead, errors=ERRORS, say=f"{_against(ahead, behind)}, higher in {_count(lead)}")


_SPEED = "mean best correlation, averaged over layers and epochs"
_CLEARLY = f"by more than {ERRORS} standard errors"


@claims.claim(
    "D7",
    "small against large",
    statement=f"{_SPEED}, is higher for the small teacher than for the large one, {_CLEARLY}",
    paper="small converges faster",
    values_are="by how much it is higher, per seed",
    when=_as_released,
)
def small_is_faster(study: Gaus, run: Run) -> Verdict | None:
    return _higher(run, GausSetting("fc-small", "none"), GausSetting("fc", "none"), speed)


@claims.claim(
    "D7",
    "small, BatchNorm",
    statement=f"small teacher: {_SPEED}, is higher without BatchNorm, {_CLEARLY}",
    paper="hurt by BatchNorm",
    values_are="by how much it is higher, per seed",
    when=_as_released,
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
    statement="CNN {norm_words}, {total:,} steps of rate {rate:g} with momentum {momentum:g}: the gain of the mean "
    "best correlation in the second half of training, averaged over layers, with finite data is at most half of that "
    f"with fresh data (median over seeds), and the end is lower, {_CLEARLY}; decided if the lowest layer ends above "
    f"{LEARNED:g} with fresh data",
    paper="finite data stalls",
    values_are="gain with finite data as a share of that with fresh data, per seed",
    cases=lambda study, run: [
        {"norm": norm, "norm_words": NORMS[norm], "total": study.epochs * study.steps, "rate": rate}
        for norm, rate in zip(NORMS, (study.cnn_lr, study.cnn_norm_lr), strict=True)
    ],
)
def finite_data_stalls(study: Gaus, run: Run, norm: str, **_: Any) -> Verdict | None:
    if (found := _compared(run, GausSetting("cnn", norm, "finite"), GausSetting("cnn", norm))) is None:
        return None
    gains, ends = ([measure(rho) for rho in found] for measure in (late_gain, final))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = _finite(gains[0] / gains[1])
    half = median(share, at_most=0.5, n=int(np.isfinite(gains).all(axis=0).sum()))
    lower = mean_above(_finite(ends[1] - ends[0]), errors=ERRORS, say="{mean:.3f}")
    lowest = [rho.isel(layer=0, epoch=-1).to_numpy() for rho in found]
    words = f"adds {_against(gains[0], gains[1], '.4f')}, ends at {_against(ends[0], ends[1])}, the lowest layer at"
    verdict = (half & median(gains[1], above=0.0) & lower).say(
        f"{words} {_against(lowest[0], lowest[1])}; fresh data ends higher by {lower.measured}"
    )
    trained = np.nanmedian(lowest[1]) > LEARNED
    return verdict.provided(trained, f"training until the lowest layer, with fresh data, is above {LEARNED:g}")


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


def _matrices(study: Gaus, run: Run) -> dict[str, Modulation]:
    """H* and β* of the fully connected settings, FC without BatchNorm first.

    Empty if the run does not have this setting, on which claims are decided.
    """
    settings = [GausSetting(kind, norm) for kind in ("fc", "fc-small") for norm in NORMS]
    found = {setting.words: modulated(study, run, setting) for setting in settings if _compared(run, setting)}
    known = {words: each for words, each in found.items() if each is not None}
    return known if settings[0].words in known else {}


@claims.claim(
    "D8",
    "dominant",
    statement="students reordered by match: at the end the mean entry on the diagonal of H* and of β* is at least "
    f"{DOMINANT:g} times the mean size of the other entries, at every layer (medians over seeds)",
    paper="students that match a teacher node have high entries with it; identity-like matrices",
    values_are="least ratio of a layer and matrix, per network",
    when=_as_released,
)
def diagonals_dominate(study: Gaus, run: Run) -> Verdict | None:
    def test(ratio: np.ndarray) -> Verdict:
        words = f"least ratio of a layer {number(np.median(ratio, axis=0).min(), '.1f')}"
        return median(ratio, at_least=DOMINANT, say=words).show(ratio.min(axis=(1, 2)), low=DOMINANT)

    if not (matrices := _matrices(study, run)):
        return None
    decided, *others = matrices
    before, after = np.moveaxis(np.median(matrices[decided].dominance, axis=0), -1, 0)
    ranges = "; ".join(
        f"{name} from {_row(before[:, i], '.1f')} to {_row(after[:, i], '.1f')}" for i, name in enumerate(MATRICES)
    )
    verdict = test(matrices[decided].dominance[..., 1]).say(f"{ranges}, layers 1 to {len(before)}")
    return verdict.with_variants({words: test(matrices[words].dominance[..., 1]) for words in others})


@claims.claim(
    "D8",
    "H* against β*",
    statement="the share of the squared entries that lies on the diagonal grows more in H* than in β*, averaged over "
    f"layers, {_CLEARLY}",
    paper="more in H* than in β*",
    values_are="by how much it grows more, per network",
    when=_as_released,
)
def more_in_h(study: Gaus, run: Run) -> Verdict | None:
    growths = {
        words: (each.diagonal[..., 1] - each.diagonal[..., 0]).mean(axis=1)
        for words, each in _matrices(study, run).items()
    }
    if not growths:
        return None
    found = {words: each[:, 0] - each[:, 1] for words, each in growths.items()}
    verdicts = {words: mean_above(more, errors=ERRORS, say=f"more in {_count(more)}") for words, more in found.items()}
    decided = next(iter(verdicts))
    verdict = verdicts.pop(decided)
    by = _row(np.median(growths[decided], axis=0))
    return verdict.say(f"by {by} in H*, β*; {verdict.measured}").with_variants(verdicts)


@claims.claim(
    "L5",
    "{setting.words}",
    statement="median over teacher nodes of the rank of the final winners, averaged over layers: lower after "
    f"{{early_steps:,}} steps, the first epoch, than before training, {_CLEARLY}",
    paper="S2 figs. 21, 23 show the median beside the mean",
    values_are="by how much the median rank falls, per network",
    cases=lambda study, run: [{"setting": s, "early_steps": first_epoch(study) * study.steps} for s in _SETTINGS],
    when=_as_released,
)
def median_winner_leads_early(study: Gaus, run: Run, setting: GausSetting, early_steps: int) -> Verdict | None:
    if "median_rank" not in run.metric_names:  # it was recorded later than the mean rank
        return None
    middle, mean = (curves(run, setting, name).dropna("seed", how="all") for name in ("median_rank", "mean_rank"))
    if not middle.size:
        return None
    before, after = (middle.sel(epoch=epoch).mean("layer") for epoch in (0, first_epoch(study)))
    mean = mean.sel(epoch=first_epoch(study))
    words = f"from {number(before.mean().item(), '.3f')} to {number(after.mean().item(), '.3f')}"
    falls = mean_above((before - after).to_numpy(), errors=ERRORS, say=words)
    return falls.also(f"the mean rank is then {number(mean.mean().item(), '.3f')}")


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _against(first: np.ndarray, second: np.ndarray, digits: str = ".3f") -> str:
    """The medians over seeds of two settings."""
    return " against ".join(number(np.nanmedian(values), digits) for values in (first, second))


def _count(differences: np.ndarray) -> str:
    """How many differences are above 0: `4 of 5`."""
    return f"{(differences > 0).sum()} of {len(differences)}"


def _row(values: np.ndarray, digits: str = ".3f") -> str:
    return ", ".join(number(v, digits) for v in values)
