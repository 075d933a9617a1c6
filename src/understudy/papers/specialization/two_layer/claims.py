"""Claims T1 to T6 and T10: which teacher nodes are recovered, when, and at what loss (Tian 2020, figs 5, 7, 8)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from understudy.claims import Claims, Verdict, every, median, number
from understudy.lab.recovery import first_epochs, strengths
from understudy.measures import THRESHOLD
from understudy.papers.specialization.two_layer.study import TwoLayer
from understudy.store import Run
from understudy.store.arrays import Networks

_FIG8 = {0.5: -6.45, 1.0: -6.50, 1.5: -6.50, 2.0: -5.09, 2.5: -5.30}
"""log10 evaluation loss over the panels of Tian 2020, fig. 8, by polarity."""
_T1_TOLERANCE = 0.4
FIGURES_STD = 1.5
"""Standard deviation of the inputs that gives the printed losses; the text of the papers says otherwise."""
_NOISE = 4.0
"""Standard errors by which a weaker node may be ahead of a stronger one: there are thousands of such pairs."""
L_POLARITIES = (0.0, 1.0, 2.0)
"""Rows of Tian 2020, fig. 5."""
SHOWN = 5.0
"""The over-realization of Tian 2020, figs 7 and 8."""


def _plain(study: TwoLayer) -> bool:
    """ReLU and Gaussian inputs of the figures."""
    return not study.leaky and study.inputs == "gaussian" and study.input_std == FIGURES_STD


def _other(study: TwoLayer) -> bool:
    """Another activation, or uniform inputs."""
    return bool(study.leaky) or study.inputs == "uniform"


def _uniform(study: TwoLayer) -> bool:
    return study.inputs == "uniform" and not study.leaky


claims = Claims(fixed="epochs steps batch lr dim outputs train evaluation")


def by_size(run: Run) -> dict[int, Networks]:
    """The networks of each teacher size, from few nodes to many. Runs of format 1 had one size, and no column of it."""
    if "teacher_nodes" not in run.networks.column_names:
        return {int(run.options["teacher_nodes"]): run.select()}
    return {int(nodes): run.select(teacher_nodes=nodes) for nodes in run.select().values("teacher_nodes")}


def best_correlations(networks: Networks, nodes: int, dims: str, epoch: int | None = None) -> xr.DataArray:
    """Correlations of teacher nodes with their best students, without the nodes that only larger teachers have."""
    return networks.array("correlation", f"{dims} teacher", epoch=epoch).isel(teacher=slice(nodes))


def recovery_rates(networks: Networks, nodes: int, epoch: int) -> xr.DataArray:
    """Share of seeds that recover each teacher node, by polarity and multiple; NaN where no network is left."""
    return recovered_nodes(networks, nodes, epoch).mean("seed")


def recovered_nodes(networks: Networks, nodes: int, epoch: int) -> xr.DataArray:
    """Whether each teacher node is recovered, 1 or 0, by polarity, multiple and seed; NaN where a network diverged."""
    best = best_correlations(networks, nodes, "polarity multiple seed epoch", epoch).isel(epoch=0)
    return (best > THRESHOLD).where(best.notnull())


def rank_correlations(first: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation of epoch and strength, per network, over the recovered nodes.

    Nodes that were never recovered have no epoch of recovery: with these tied in the last place, even a perfect order
    of few recovered nodes among many stays above −0.9.
    """
    pairs = [(f[np.isfinite(f)], s[np.isfinite(f)]) for f, s in zip(first, strength, strict=True)]
    return np.array([stats.spearmanr(f, s).statistic for f, s in pairs if len(set(f)) > 1])


def _decided_on(nodes: int) -> Callable[[Callable[..., Verdict | None]], Callable[..., Verdict | None]]:
    """Decide on the teacher size of the paper, and show the other sizes of the sweep beside it."""

    def decorate(test: Callable[..., Verdict | None]) -> Callable[..., Verdict | None]:
        def decide(study: TwoLayer, run: Run, **case: Any) -> Verdict | None:
            sizes = by_size(run)
            decided = test(study, sizes[nodes], nodes, **case) if nodes in sizes else None
            found = {m: test(study, some, m, **case) for m, some in sizes.items() if decided and m != nodes}
            return decided and decided.with_variants({f"{m} nodes": verdict for m, verdict in found.items() if verdict})

        return decide

    return decorate


def _cell(networks: Networks, polarity: float | list[float], multiple: float = SHOWN) -> Networks:
    """The networks of one setting, or of several polarities, that did not diverge."""
    cell = networks.select(polarity=polarity, multiple=multiple)
    return Networks(cell.run, cell.index[cell.alive])


def _of_twenty(run: Run, polarity: float) -> Networks | None:
    """The networks of teachers with 20 nodes at 5×; None if there are none."""
    networks = by_size(run).get(20)
    return (networks and _cell(networks, polarity)) or None


def _polarities(study: TwoLayer, run: Run) -> list[dict[str, float]]:
    """Polarities of at least 1."""
    return [{"polarity": p} for p in run.select().values("polarity") if p >= 1]


def _multiples(study: TwoLayer, run: Run) -> list[dict[str, float]]:
    return [{"k": k} for k in run.select().values("multiple")]


def _settings(study: TwoLayer, run: Run) -> list[dict[str, float]]:
    polarities = [p for p in run.select().values("polarity") if p in L_POLARITIES]
    return [{"polarity": p} | case for p in polarities for case in _multiples(study, run)]


@claims.again(
    "T10",
    "{variant_words}, T1, p = {polarity:g}",
    when=lambda study: _uniform(study) and study.input_std == FIGURES_STD,
)
@claims.claim(
    "T1",
    "p = {polarity:g}",
    statement="log10 evaluation loss after {epochs} epochs, 20 teacher nodes, 5×: median over seeds within 0.4",
    paper="{loss}",
    when=_plain,
    cases=lambda study, run: [{"polarity": p, "loss": number(loss, ".2f")} for p, loss in _FIG8.items()],
)
def final_loss(study: TwoLayer, run: Run, polarity: float, loss: str) -> Verdict | None:
    """The papers print losses for 20 teacher nodes only."""
    if (cell := _of_twenty(run, polarity)) is None:
        return None
    low, high = _FIG8[polarity] - _T1_TOLERANCE, _FIG8[polarity] + _T1_TOLERANCE
    words = "{median:.2f} (quartiles {quartiles:.2f})"
    return median(np.log10(cell.end("eval_loss")), at_least=low, at_most=high, say=words)


@claims.again("T10", "{variant_words}, T2, order", when=_other)
@claims.claim(
    "T2",
    "order",
    statement=f"recovery rate by teacher index, p > 0: no weaker node is ahead by more than {_NOISE:g} standard errors",
    paper="non-increasing in the index up to seed noise",
    values_are="largest lead of a weaker node, per curve",
    when=_plain,
)
@_decided_on(20)
def stronger_nodes_first(study: TwoLayer, networks: Networks, nodes: int) -> Verdict | None:
    seeds, leads = len(networks.values("seed")), []
    for epoch in (5, study.epochs):
        rates = recovery_rates(networks, nodes, epoch)
        curves = rates.where(rates["polarity"] > 0).stack(setting=("polarity", "multiple"))
        each = curves.transpose("setting", "teacher").to_numpy()
        leads += [_largest_lead(rate, seeds) for rate in each if np.isfinite(rate).all()]
    words = "largest lead of a weaker node {most:.1f} standard errors"
    return every(leads, at_most=_NOISE, n=seeds, say=words) if leads else None


def _largest_lead(rate: np.ndarray, n: int) -> float:
    """The most by which a later node is ahead of an earlier one, in standard errors of their difference."""
    ahead = rate[None, :] - rate[:, None]
    pooled = (rate[None, :] + rate[:, None]) / 2
    error = np.sqrt(2 * np.clip(pooled * (1 - pooled), 1 / (4 * n), None) / n)
    return float(np.triu(ahead / error, 1).max())


@claims.again(
    "T10",
    "{variant_words}, T2, p = 2.5, 5×",
    when=lambda study: _other(study) and study.input_std == FIGURES_STD,
)
@claims.claim(
    "T2",
    "p = 2.5, 5×",
    statement="p = 2.5, 5×: recovery rate at least 0.9 for the 6 strongest nodes, at most 0.1 from the 10th on",
    paper="≥ 0.9 for nodes 1–6, ≤ 0.1 from node 10",
    values_are="recovery rate of each teacher node",
    when=_plain,
)
def six_strongest(study: TwoLayer, run: Run) -> Verdict | None:
    """Inputs narrower than those of the figures slow learning down, and reach fewer nodes by epoch 100."""
    if (cell := _of_twenty(run, 2.5)) is None:
        return None
    best = best_correlations(cell, 20, "network epoch", study.epochs).isel(epoch=0)
    rate = (best > THRESHOLD).mean("network").to_numpy()
    words = f"lowest of 1–6: {rate[:6].min():.2f}, highest from 10: {rate[9:].max():.2f}"
    both = every(rate[:6], at_least=0.9, n=len(cell), say=words) & every(rate[9:], at_most=0.1, say="")
    return both.show(rate)


@claims.claim(
    "T3",
    "p = {polarity:g}",
    statement="recovered teacher nodes (mean over seeds) at epoch 100 do not fall with over-realization",
    paper="10× ≥ 5× ≥ 2× ≥ 1×",
    values_are="mean number of recovered nodes, per over-realization",
    when=_plain,
    cases=_polarities,
)
@_decided_on(20)
def wider_recover_more(study: TwoLayer, networks: Networks, nodes: int, polarity: float) -> Verdict | None:
    count = (networks.array("recovered", "multiple seed", layer=0, polarity=polarity) * nodes).round()
    return _by_multiple(count, count.mean("seed"), lambda steps: steps >= 0)


@claims.claim(
    "T3",
    "p = 1, all nodes",
    statement="p = 1: all teacher nodes are recovered at 5× in every seed, and not at 1×",
    paper="5× all 20, 1× not",
    values_are="recovered nodes at 5×, per seed",
    when=_plain,
)
@_decided_on(20)
def all_at_five_times(study: TwoLayer, networks: Networks, nodes: int) -> Verdict | None:
    wide, narrow = (_cell(networks, 1.0, multiple).end("recovered", layer=0) for multiple in (5.0, 1.0))
    if not (len(wide) and len(narrow)):
        return None
    words = (
        f"all {nodes} in {(wide == 1).sum()} of {len(wide)} seeds at 5×, in {(narrow == 1).sum()} of {len(narrow)} "
        "at 1×"
    )
    holds = bool((wide == 1).all() and not (narrow == 1).all())
    return Verdict(holds, words, len(wide)).show(np.rint(nodes * wide), low=nodes)


def _by_multiple(
    values: xr.DataArray, middle: xr.DataArray, in_order: Callable[[np.ndarray], np.ndarray]
) -> Verdict | None:
    """Whether steps from one multiple to the next are in order; None unless several multiples have networks left."""
    if values.sizes["multiple"] < 2 or not values.notnull().any("seed").all():
        return None
    words = []
    for k, m, row in zip(values["multiple"].to_numpy(), middle.to_numpy(), values.to_numpy(), strict=True):
        low, high = np.percentile(row[np.isfinite(row)], (25, 75))
        words.append(f"{k:g}×: {number(m, '.2f')} ({number(low, '.2f')} to {number(high, '.2f')})")
    holds = bool(in_order(np.diff(middle)).all())
    return Verdict(holds, ", ".join(words), values.sizes["seed"], tuple(middle.to_numpy().tolist()))


def unspecialised_share(rho: np.ndarray, fan_out: np.ndarray, below: float) -> np.ndarray:
    """Share of each network's squared fan-out on students whose best correlation is below a bound."""
    square = np.nan_to_num(fan_out) ** 2
    share: np.ndarray = np.where(rho < below, square, 0).sum(-1) / square.sum(-1)
    return share


def _students(networks: Networks) -> tuple[np.ndarray, np.ndarray]:
    """[network, student]: best correlation and fan-out of every student at the end."""
    run, epoch = networks.run, int(networks.run.epochs[-1])
    rho, fan_out = (run.matched("student", column, epoch=epoch)[networks.index] for column in ("correlation", "fanout"))
    return rho, fan_out


@claims.again("T10", "{variant_words}, T4, p = {polarity:g}, {k:g}×", when=_other)
@claims.claim(
    "T4",
    "p = {polarity:g}, {k:g}×",
    statement="students whose best correlation is below 0.8 hold less than 2% of their network's squared fan-out",
    paper="< 2%",
    when=_plain,
    cases=_settings,
)
@_decided_on(10)
def unspecialised_are_silent(
    study: TwoLayer, networks: Networks, nodes: int, polarity: float, k: float
) -> Verdict | None:
    cell = _cell(networks, polarity, k)
    words = "largest {most:.2%}, median {median:.2%}; under 2% in {count}"
    return every(unspecialised_share(*_students(cell), 0.8), below=0.02, say=words) if len(cell) else None


@claims.again("T10", "{variant_words}, T4, below 0.5, {k:g}×", when=_other)
@claims.claim(
    "T4",
    "below 0.5, {k:g}×",
    statement="fan-out of students with best correlation below 0.5, relative to the largest in their network: median "
    "at most 10%",
    paper="near 5%",
    values_are="relative fan-out, per student",
    when=_plain,
    cases=_multiples,
)
@_decided_on(10)
def unmatched_fan_out(study: TwoLayer, networks: Networks, nodes: int, k: float) -> Verdict | None:
    rho, fan_out = _students(_cell(networks, list(L_POLARITIES), k))
    if not (rho < 0.5).any():
        return None
    relative = (fan_out / np.nanmax(fan_out, axis=1, keepdims=True))[rho < 0.5]
    words = f"median {{median:.1%}} over {len(relative)} students (quartiles {{quartiles:.1%}})"
    return median(relative, at_most=0.1, say=words)


@claims.claim(
    "T5",
    "p = {polarity:g}",
    statement="rank correlation of strength and epoch of recovery over the recovered nodes, 5×: median over seeds at "
    "most −0.9",
    paper="≤ −0.9",
    values_are="rank correlation, per network",
    when=_plain,
    cases=_polarities,
)
@_decided_on(20)
def strength_decides_when(study: TwoLayer, networks: Networks, nodes: int, polarity: float) -> Verdict | None:
    cell = _cell(networks, polarity)
    first, norms = (values[cell.index, :nodes] for values in (first_epochs(cell.run), strengths(cell.run)))
    each = rank_correlations(first, norms)
    if not len(each):
        return None
    tied = np.median(rank_correlations(np.where(np.isinf(first), study.epochs + 1, first), norms))
    words = (
        f"{{median:.3f}} (quartiles {{quartiles:.2f}}) over {np.isfinite(first).sum(1).mean():.1f} nodes; "
        f"{number(tied, '.3f')} over all, with those never recovered tied last"
    )
    return median(each, at_most=-0.9, say=words)


@claims.claim(
    "T6",
    "p = {polarity:g}",
    statement="median log10 evaluation loss after {epochs} epochs falls with over-realization",
    paper="1× > 2× > 5× > 10×",
    values_are="median log10 loss, per over-realization",
    when=_plain,
    cases=_polarities,
)
@_decided_on(20)
def wider_end_lower(study: TwoLayer, networks: Networks, nodes: int, polarity: float) -> Verdict | None:
    loss = networks.array("eval_loss", "multiple seed", polarity=polarity)
    loss = loss.copy(data=np.log10(loss))
    return _by_multiple(loss, loss.median("seed"), lambda steps: steps < 0)


@claims.claim(
    "T10",
    "{variant_words}, slower",
    statement="learning is slower: at p = 2.5, 5× fewer than 6 nodes are recovered after {epochs} epochs, median over "
    "seeds",
    paper="4 of 20",
    values_are="recovered nodes, per seed",
    when=lambda study: _uniform(study) and study.input_std != FIGURES_STD,
)
def narrow_inputs_are_slower(study: TwoLayer, run: Run) -> Verdict | None:
    """The U[−1, 1] of the paper's text; the inputs of the figures reach at least the 6 strongest nodes (T2)."""
    cell = _of_twenty(run, 2.5)
    words = "{median:g} of 20 (quartiles {quartiles:.0f})"
    return None if cell is None else median(np.rint(cell.end("recovered", layer=0) * 20), below=6.0, say=words)
