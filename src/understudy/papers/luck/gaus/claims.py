"""What a run on Gaussian inputs decides: D5, D7, D8. Layers are counted from the lowest, which is layer 1."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.lab import matrices
from understudy.lab.matrices import MATRICES, Modulated
from understudy.lab.study import ranked
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.luck.gaus.study import Gaus

NAMES = {"fc": "FC", "cnn": "CNN", "fc-small": "small FC"}
NORMS = {"none": "without BatchNorm", "after": "with BatchNorm"}
SMALL_RANK = 0.1
"""Ours: winners were, on average, among the first tenth, where chance gives 0.5. The paper's text has no number."""
_FIRST_EPOCH = 1_562
"""Steps of the released code's first epoch: 100,000 samples in batches of 64."""
_LEAST_STEPS = 8_000
_FREE = ("seeds", "dtype", "device", "networks", "norm", "data", "epochs", "steps", "train")
"""Options that a run may choose without leaving the settings of the claims."""


class Setting(NamedTuple):
    """Networks that differ in their seed alone."""

    kind: str
    norm: str
    data: str = "infinite"

    @property
    def words(self) -> str:
        return f"{NAMES[self.kind]} {NORMS[self.norm]}" + (", finite data" if self.data == "finite" else "")


def networks(run: Run, setting: Setting) -> np.ndarray:
    """In the order of their seeds, −1 where one diverged; none where the run has no such setting."""
    columns = zip(setting._fields, setting, strict=True)
    here = np.logical_and.reduce([run.column(name) == value for name, value in columns])
    alive = run.networks["diverged_at"].is_null().to_numpy()
    return np.where(alive, np.arange(len(here)), -1)[here]


def by_layer(study: Gaus, run: Run, setting: Setting, metric: str = "rho_mean") -> np.ndarray:
    """[seed, layer, epoch] of a metric of layers, NaN where a network diverged."""
    which = networks(run, setting)
    each = np.stack([run.series(metric, layer)[which] for layer in range(len(study.layers(setting.kind)))], axis=1)
    return np.where((which >= 0)[:, None, None], each, np.nan)


def claims(study: Gaus, run: Run) -> list[Claim]:
    """Each for which the run has every setting that it compares, with a network left in it."""
    return [*_d5(study, run), *_d7(study, run), *_d8(study, run)] if _papers_settings(study) else []


def _papers_settings(study: Gaus) -> bool:
    """How long the figures train cannot be read from the paper."""
    ours, plain = ({k: v for k, v in s.options().items() if k not in _FREE} for s in (study, type(study)()))
    return ours == plain and study.epochs * study.steps >= _LEAST_STEPS


def _there(run: Run, *settings: Setting) -> bool:
    """Whether the run has them all, and a seed whose networks are left in each."""
    found = [networks(run, setting) for setting in settings]
    return all(len(each) for each in found) and bool((np.stack(found) >= 0).all(axis=0).any())


def first_epoch(study: Gaus) -> int:
    """The first epoch with known ranks that has as many steps behind it as the released code's first.

    Of a shorter run the first.
    """
    return next((e for e in ranked(study.epochs)[:-1] if e * study.steps >= _FIRST_EPOCH), 1)


def _d5(study: Gaus, run: Run) -> Iterator[Claim]:
    for setting in [Setting(kind, norm) for kind in ("fc", "cnn") for norm in NORMS]:
        if _there(run, setting):
            yield _grows(study, run, setting)
            yield _early(study, run, setting)
    plain, normed = Setting("cnn", "none"), Setting("cnn", "after")
    if _there(run, plain, normed):
        yield _better(study, run, plain, normed)


def _grows(study: Gaus, run: Run, setting: Setting) -> Claim:
    rho = _alive(by_layer(study, run, setting))
    rise = rho[..., -1] - rho[..., 0]
    end, start = (np.median(rho[..., i], axis=0) for i in (-1, 0))
    return Claim(
        id="D5",
        statement="mean best correlation is higher at the end than before training at every layer of every network, and at the "
        "end highest in the lowest layer (medians over seeds; below: the least rise of a layer, a network)",
        paper="grows; lowest layer best",
        measured=f"from {_row(start)} to {_row(end)}, layers 1 to {len(end)}",
        n=len(rho),
        holds=bool((rise > 0).all() and (end[0] > end[1:]).all()),
        part=f"{setting.words}, correlation",
        values=tuple(rise.min(axis=1).tolist()),
        low=0.0,
    )


def _early(study: Gaus, run: Run, setting: Setting) -> Claim:
    rank, epoch = _alive(by_layer(study, run, setting, "mean_rank")), first_epoch(study)
    at = [int(np.searchsorted(run.epochs, e)) for e in (0, epoch)]
    before, after = (np.median(rank[..., i], axis=0) for i in at)
    mean = rank[..., at[1]].mean(axis=1)
    return Claim(
        id="D5",
        statement=f"mean rank of the final winners after {epoch * study.steps:,} steps, averaged over layers: at most "
        f"{SMALL_RANK}, where chance gives 0.5, and lower than before training (medians over seeds)",
        paper="already small after the first epoch",
        measured=f"{np.median(mean):.3f}; by layer {_row(after)}, before training {_row(before)}",
        n=len(rank),
        holds=bool(np.median(mean) <= SMALL_RANK and np.median(mean) < np.median(rank[..., at[0]].mean(axis=1))),
        part=f"{setting.words}, rank",
        values=tuple(mean.tolist()),
        low=None,
        high=SMALL_RANK,
    )


def _better(study: Gaus, run: Run, plain: Setting, normed: Setting) -> Claim:
    without, with_norm = (by_layer(study, run, s)[..., -1].mean(axis=1) for s in (plain, normed))
    epoch = int(np.searchsorted(run.epochs, first_epoch(study)))
    ranks = [np.nanmedian(by_layer(study, run, s, "mean_rank")[..., epoch].mean(axis=1)) for s in (normed, plain)]
    gain = _finite(with_norm - without)
    return Claim(
        id="D5",
        statement="CNN: mean best correlation at the end, averaged over layers, is higher with BatchNorm than without (median "
        "over seeds of the difference)",
        paper="BatchNorm better for the CNN",
        measured=f"{np.nanmedian(with_norm):.3f} against {np.nanmedian(without):.3f}, higher in {(gain > 0).sum()} of "
        f"{len(gain)}; mean rank early {ranks[0]:.3f} against {ranks[1]:.3f}",
        n=len(gain),
        holds=bool(len(gain) and np.median(gain) > 0),
        part="CNN, BatchNorm",
        values=tuple(gain.tolist()),
        low=0.0,
    )


def speed(study: Gaus, run: Run, setting: Setting) -> np.ndarray:
    """[seed]: mean best correlation averaged over layers and over all epochs: the faster it rises, the higher."""
    return by_layer(study, run, setting)[..., 1:].mean(axis=(1, 2))


def late_gain(study: Gaus, run: Run, setting: Setting) -> np.ndarray:
    """[seed]: what the second half of training adds to the mean best correlation, averaged over layers."""
    rho = by_layer(study, run, setting).mean(axis=1)
    return rho[:, -1] - rho[:, rho.shape[1] // 2]


def _d7(study: Gaus, run: Run) -> Iterator[Claim]:
    words = "mean best correlation, averaged over layers and epochs"
    small, large = (Setting(kind, "none") for kind in ("fc-small", "fc"))
    if _there(run, small, large):
        yield _compared(study, run, f"{words}: higher for the small teacher than for the large one", small, large)
    normed = Setting("fc-small", "after")
    if _there(run, small, normed):
        beside: tuple[Variant, ...] = ()
        if _there(run, large, Setting("fc", "after")):
            gain = _finite(speed(study, run, large) - speed(study, run, Setting("fc", "after")))
            beside = (Variant("large teacher", f"higher without in {(gain > 0).sum()} of {len(gain)}", _rises(gain)),)
        yield _compared(study, run, f"{words}: higher without BatchNorm, small teacher", small, normed, beside)
    for norm in NORMS:
        fresh, fixed = (Setting("cnn", norm, data) for data in ("infinite", "finite"))
        if _there(run, fresh, fixed):
            yield _stalls(study, run, fresh, fixed)


def _compared(
    study: Gaus, run: Run, statement: str, first: Setting, second: Setting, beside: tuple[Variant, ...] = ()
) -> Claim:
    ahead, behind = speed(study, run, first), speed(study, run, second)
    lead = _finite(ahead - behind)
    small = first.kind != second.kind
    return Claim(
        id="D7",
        statement=f"{statement} (median over seeds of the difference)",
        paper="small converges faster" if small else "hurt by BatchNorm",
        measured=f"{np.nanmedian(ahead):.3f} against {np.nanmedian(behind):.3f}, higher in {(lead > 0).sum()} of {len(lead)}",
        n=len(lead),
        holds=_rises(lead),
        part="small against large" if small else "small, BatchNorm",
        values=tuple(lead.tolist()),
        low=0.0,
        variants=beside,
    )


def _stalls(study: Gaus, run: Run, fresh: Setting, fixed: Setting) -> Claim:
    gains = [late_gain(study, run, setting) for setting in (fresh, fixed)]
    ends = [by_layer(study, run, setting)[..., -1].mean(axis=1) for setting in (fresh, fixed)]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = _finite(gains[1] / gains[0])
    higher = np.nanmedian(ends[0]) > np.nanmedian(ends[1])
    return Claim(
        id="D7",
        statement=f"CNN {NORMS[fresh.norm]}: what the second half of training adds to the mean best correlation, averaged over "
        "layers, with finite data is at most half of that with fresh data, and the end is lower (medians over seeds; "
        "below: the share)",
        paper="finite data stalls",
        measured=f"adds {np.nanmedian(gains[1]):.4f} against {np.nanmedian(gains[0]):.4f}, ends at {np.nanmedian(ends[1]):.3f} "
        f"against {np.nanmedian(ends[0]):.3f}",
        n=int(np.isfinite(gains).all(axis=0).sum()),
        holds=bool(len(share) and np.nanmedian(gains[0]) > 0 and np.median(share) <= 0.5 and higher),
        part=f"finite data, {NORMS[fresh.norm]}",
        values=tuple(share.tolist()),
        low=None,
        high=0.5,
    )


@lru_cache(maxsize=4)
def modulated(study: Gaus, run: Run, setting: Setting) -> Modulated | None:
    """Of all networks of a setting; of convolutional ones, whose samples have many positions, of the first alone."""
    which = networks(run, setting)
    which = which[which >= 0][: 1 if setting.kind == "cnn" else None]
    return matrices.modulated(run, which, lambda: study.source(setting.kind, setting.data))


def _d8(study: Gaus, run: Run) -> Iterator[Claim]:
    setting = Setting("fc", "none")
    if not _there(run, setting):
        return
    others = [Setting("fc", "after"), Setting("fc-small", "none"), Setting("fc-small", "after")]
    every = {s.words: modulated(study, run, s) for s in (setting, *others) if _there(run, s)}
    beside = {words: found.diagonal for words, found in every.items() if found is not None}
    if setting.words not in beside:
        return
    diagonal = beside.pop(setting.words)
    growth = diagonal[..., 1] - diagonal[..., 0]
    before, after = (np.median(diagonal[..., i], axis=0) for i in (0, 1))
    ranges = "; ".join(f"{name} from {_row(before[:, i])} to {_row(after[:, i])}" for i, name in enumerate(MATRICES))
    yield Claim(
        id="D8",
        statement="students reordered by match: the share of the squared entries of H* and of β* on the diagonal grows from "
        "before training to the end at every layer (medians over seeds; below: the least growth in a network)",
        paper="diagonal mass grows",
        measured=f"{ranges}, layers 1 to {len(before)}",
        n=len(diagonal),
        holds=bool((np.median(growth, axis=0) > 0).all()),
        part="grows",
        values=tuple(growth.min(axis=(1, 2)).tolist()),
        low=0.0,
        variants=tuple(Variant(words, *_least_growth(d)) for words, d in beside.items()),
    )
    more = _more(diagonal)
    yield Claim(
        id="D8",
        statement="the diagonal's share grows more in H* than in β*, averaged over layers (median over seeds of the difference)",
        paper="more in H* than in β*",
        measured=f"by {_row(np.median(growth.mean(axis=1), axis=0))} in H*, β*; more in {(more > 0).sum()} of {len(more)}",
        n=len(more),
        holds=_rises(more),
        part="H* against β*",
        values=tuple(more.tolist()),
        low=0.0,
        variants=tuple(
            Variant(words, f"more in {(_more(d) > 0).sum()} of {len(d)}", _rises(_more(d)))
            for words, d in beside.items()
        ),
    )


def _least_growth(diagonal: np.ndarray) -> tuple[str, bool]:
    """In words, and whether every layer's grows, medians over seeds."""
    least = float(np.median(diagonal[..., 1] - diagonal[..., 0], axis=0).min())
    return f"least growth of a layer {least:.3f}", least > 0


def _more(diagonal: np.ndarray) -> np.ndarray:
    """[network]: by how much more the diagonal of H* grows than that of β*, averaged over layers."""
    growth = (diagonal[..., 1] - diagonal[..., 0]).mean(axis=1)
    return growth[:, 0] - growth[:, 1]


def _alive(values: np.ndarray) -> np.ndarray:
    """Without the networks that diverged."""
    return values[~np.isnan(values).all(axis=tuple(range(1, values.ndim)))]


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _rises(differences: np.ndarray) -> bool:
    return bool(len(differences) and np.median(differences) > 0)


def _row(values: np.ndarray) -> str:
    return ", ".join(f"{v:.3f}" for v in values)
