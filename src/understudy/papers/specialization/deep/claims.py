"""Claims D1, D2, P1 and P2: which layer learns first, how well every layer is matched, linear networks, and pruning.

Tian 2019, figs 4, 12; Tian 2020, sec. 4; Tian et al. 2019, sec. 3.3.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr

from understudy._errors import UserError
from understudy.claims import Claims, Verdict, every, mean_above, median, number
from understudy.measures import THRESHOLD
from understudy.papers.specialization.deep.study import Deep, DeepTeachers
from understudy.papers.specialization.theory.pruning import SHARE, STRENGTHS, remove_weakest
from understudy.store import Run
from understudy.theory.unexplained import unexplained

PAPERS_MULTIPLE = 10.0
CLOSE = 0.998
"""The mean best correlation that every layer reaches (Tian 2019, fig. 12)."""
FITTED, MATCHED = 1e-3, 0.05
"""P1: largest loss of a student that fits its teacher, in units of the outputs' variance, and the largest share of
teacher nodes that such a linear student recovers."""
_MODULATED = 256
"""Evaluation samples over which modulation is averaged."""


def first_passed(rho: xr.DataArray, bound: float = THRESHOLD) -> xr.DataArray:
    """The first epoch at which values exceed the bound; infinite if they never do, NaN for networks that diverged."""
    passed = rho["epoch"].where(rho > bound, np.inf).min("epoch")
    return passed.where(rho.notnull().any("epoch"))


def epoch_words(epoch: float) -> str:
    """An epoch in words: `12`, or `never` if it is infinite."""
    return f"{epoch:g}" if np.isfinite(epoch) else "never"


def has_papers_inputs(study: DeepTeachers) -> bool:
    """Whether inputs have the width of the paper."""
    return study.half_width == 15 if study.inputs == "uniform" else study.input_std == 10


claims = Claims(
    fixed="teacher_layers dim outputs epochs steps batch lr halve_after train evaluation",
    when=lambda study: has_papers_inputs(study) and PAPERS_MULTIPLE in study.multiple,
    tuned_on="an earlier trial, whose seeds are not recorded",
)


def _by_multiple(run: Run, test: Callable[[xr.DataArray], Verdict]) -> Verdict | None:
    """Decide on 10×, and show the other over-realizations of the run beside it."""
    rho = run.array("rho_mean", "multiple seed layer epoch").dropna("multiple", how="all")
    found = {float(k): test(rho.sel(multiple=k).dropna("seed", how="all")) for k in rho["multiple"]}
    decided = found.pop(PAPERS_MULTIPLE, None)
    return decided and decided.with_variants({f"{k:g}×": verdict for k, verdict in found.items()})


@claims.claim(
    "D1",
    "{inputs_words}",
    needs={"leaky": 0.0},
    statement=f"the epoch at which the mean best correlation of a layer first exceeds {THRESHOLD} rises with depth, "
    "over all four layers, in every network",
    paper="lower layers first",
    values_are="least number of epochs between two layers, per network",
    tuned_on="seed 101 at 3×; seeds 1 to 8, which decide it, had been seen when only layers 1 to 3 counted",
)
def lower_layers_first(study: Deep, run: Run) -> Verdict | None:
    """A layer that never passes comes after every epoch; two that never do are not in order.

    The text of the paper says that the lowest layer learns first and the others follow: that is shown beside it.
    """

    def test(rho: xr.DataArray) -> Verdict:
        first = first_passed(rho).transpose("seed", "layer").to_numpy()
        middle = ", ".join(epoch_words(epoch) for epoch in np.median(first, axis=0))
        first = np.where(np.isinf(first), study.epochs + 1, first)
        steps = np.diff(first, axis=1)
        others = {
            "layers 1 to 3": steps[:, :2].min(axis=1),
            "the lowest layer before all others": (first[:, 1:] - first[:, :1]).min(axis=1),
        }
        decided = every(steps.min(axis=1), above=0, say=f"medians {middle}; in this order in {{count}}")
        return decided.with_variants({name: every(lead, above=0, say="in {count}") for name, lead in others.items()})

    return _by_multiple(run, test)


@claims.claim(
    "D2",
    "{inputs_words}",
    needs={"leaky": 0.0},
    statement=f"mean best correlation after {{epochs}} epochs: median over seeds at least {CLOSE} in every layer",
    paper=f"≥ {CLOSE} at every layer",
    values_are="the lowest correlation of a layer, per network",
)
def every_layer_close(study: Deep, run: Run) -> Verdict | None:
    """Decided on the median of every layer."""

    def test(rho: xr.DataArray) -> Verdict:
        last = rho.isel(epoch=-1).transpose("seed", "layer").to_numpy()
        words = ", ".join(f"{m:.4f}" for m in np.median(last, axis=0))
        decided = median(last, at_least=CLOSE, say=f"{words}; lowest of any network {{least:.4f}}")
        return decided.show(last.min(axis=1), low=CLOSE)

    return _by_multiple(run, test)


@claims.claim(
    "P1",
    "{inputs_words}",
    statement=f"linear students that fit a linear teacher (evaluation loss at most {FITTED:g} of the output variance) "
    f"recover at most {MATCHED:.0%} of the teacher nodes of any hidden layer, in every network",
    paper="specialization does not happen",
    values_are="largest share of recovered teacher nodes of a layer, per network",
    needs={"leaky": 1.0},
    tuned_on="seed 101",
)
def linear_students_do_not_specialise(study: Deep, run: Run) -> Verdict | None:
    """Outputs have variance 1 on the evaluation inputs."""

    def ends(metric: str) -> np.ndarray:
        found = run.array(metric, "seed layer", multiple=PAPERS_MULTIPLE)
        return found.dropna("seed", how="all").transpose("seed", "layer").to_numpy()

    recovered, rho = ends("recovered"), ends("rho_mean")
    if not len(recovered):
        return None
    loss = float(np.nanmax(run.array("eval_loss", "seed", multiple=PAPERS_MULTIPLE)))
    words = ", ".join(f"{value:.3f}" for value in np.median(rho, axis=0))
    return every(
        recovered.max(axis=1),
        at_most=MATCHED,
        say=f"largest share {{most:.3f}}; mean best correlations {words} (medians); largest loss {number(loss, '.1e')}",
    ).provided(loss <= FITTED, f"training until the loss of every network is at most {FITTED:g}")


@claims.claim(
    "P2",
    "four layers, {inputs_words}",
    statement=f"without the {SHARE:.0%} of the nodes of every hidden layer that are weakest by modulation, the "
    "evaluation loss is lower than without those that are weakest by weight norm (mean over networks)",
    paper="prune by modulation instead of weight norm",
    values_are="log10 of the loss by weight norm over that by modulation, per network",
    needs={"leaky": 0.0},
    tuned_on="seeds 101 to 103, three layers of 10 to 20 nodes, 5× and 10×",
)
def modulation_prunes_better(study: Deep, run: Run) -> Verdict | None:
    """Losses are shares of the variance of the teacher's outputs, without fitting weights again."""
    networks = run.select(multiple=PAPERS_MULTIPLE)
    source, losses = study.source(study.train, fresh=True), []
    try:
        for network in networks.index[networks.alive].tolist():
            group, place = divmod(network, study.seeds)
            teacher, student = (run.weights(who)[group][place] for who in ("teacher", f"epoch.{study.epochs}"))
            x = source.evaluating(int(teacher.seeds[0]), dtype=teacher.dtype)
            smaller = [remove_weakest(student, x[:_MODULATED], by, SHARE) for by in STRENGTHS]
            losses.append([float(unexplained(teacher, each, x)) for each in smaller])
    except UserError:  # no weights are kept
        return None
    if not losses:
        return None
    modulation, norm = np.array(losses).T
    words = f"losses {np.median(modulation):.2g} and {np.median(norm):.2g} of the variance (medians); mean {{mean:.3f}}"
    return mean_above(np.log10(norm / modulation), errors=2, say=words)
