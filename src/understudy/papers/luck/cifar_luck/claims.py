"""Claim D6: correlations, accuracies, and what BatchNorm changes in them, on CIFAR-10 (Tian et al. 2019, fig. 9)."""

import xarray as xr

from understudy.claims import Claims, Verdict, every, mean_above, number, share
from understudy.papers.luck.cifar_luck.study import CifarLuck
from understudy.papers.luck.shared import ERRORS
from understudy.store import Run

KINDS = {"fc": "FC", "cnn": "ConvNet"}
NORMS = {"none": "no BatchNorm", "after": "BatchNorm"}
TEACHERS = {"fc": 0.5495, "cnn": 0.864}
"""Accuracy of the paper's teachers (Tian et al. 2019, sec. 5.1)."""
CLOSE = 0.015
"""Most by which the mean accuracy of teachers may differ from that of the paper's."""
BEHIND = 1.0
"""Most points of accuracy by which students may be below their teacher."""
ABOVE = (0.5, 1.5)
"""Points above the teacher that round to the paper's "about 1%"."""

claims = Claims(
    fixed="fc_layers cnn_layers over_realization train evaluation",
    least={"seeds": 5, "epochs": 10, "teacher_epochs": 10},
    tuned_on="rates on seeds 1 to 3, which decide it; fully connected teachers on seeds 101 and 102",
)


def _settings(study: CifarLuck, run: Run) -> list[dict[str, str]]:
    """Kinds of networks and BatchNorms with a network that did not diverge."""
    return [
        {"kind": kind, "norm": norm, "title": f"{KINDS[kind]}, {NORMS[norm]}", "teacher": f"{TEACHERS[kind]:.2%}"}
        for kind in study.networks
        for norm in study.norm
        if run.select(network_kind=kind, norm=norm).alive.any()
    ]


def _kinds(study: CifarLuck, run: Run) -> list[dict[str, str]]:
    """Kinds of networks that have students with and without BatchNorm that did not diverge."""
    alive = [(setting["kind"], setting["norm"]) for setting in _settings(study, run)]
    return [{"kind": kind, "title": KINDS[kind]} for kind in study.networks if {(kind, n) for n in NORMS} <= {*alive}]


def _with_papers_teacher(verdict: Verdict, run: Run, kind: str) -> Verdict:
    """Leave a claim not decided unless the teachers are about as accurate as the paper's."""
    mean, papers = run.array("teacher_accuracy", "norm seed", network_kind=kind).mean().item(), TEACHERS[kind]
    wanted = f"teachers within {100 * CLOSE:g} points of {papers:.2%}"
    return verdict.also(f"teacher {mean:.1%}").provided(abs(mean - papers) <= CLOSE, wanted)


def _averaged(run: Run, metric: str, kind: str) -> xr.DataArray:
    """A metric [norm, seed], averaged over layers and the recorded epochs between the first and the last."""
    layered = metric in ("mean_rank", "rho_mean")
    values = run.array(metric, "norm seed layer epoch" if layered else "norm seed epoch", network_kind=kind)
    between = values.dropna("epoch", how="all").isel(epoch=slice(1, -1)).sel(norm=list(NORMS))
    return between.mean([dim for dim in values.dims if dim not in ("norm", "seed")])


@claims.claim(
    "D6",
    "{title}, correlation",
    statement="mean best correlation is higher at the end of training than before, at every layer of every network",
    paper="grows",
    values_are="growth, per network and layer",
    cases=_settings,
)
def correlation_grows(study: CifarLuck, run: Run, kind: str, norm: str, title: str, teacher: str) -> Verdict:
    rho = run.array("rho_mean", "seed layer epoch", network_kind=kind, norm=norm).dropna("seed", how="all")
    start, end = (", ".join(number(r, ".2f") for r in rho[..., epoch].mean("seed").to_numpy()) for epoch in (0, -1))
    growth, words = (rho[..., -1] - rho[..., 0]).to_numpy(), f"{start} to {end}, from the lowest layer up"
    return _with_papers_teacher(every(growth, above=0.0, n=len(growth), say=words), run, kind)


@claims.claim(
    "D6",
    "{title}, accuracy",
    statement=f"evaluation accuracy: less than {BEHIND:g} point below the teacher's, by more than {ERRORS} standard "
    "errors",
    paper="often about 1 point above; teacher {teacher}",
    values_are="points above the teacher, per network",
    cases=_settings,
)
def close_to_the_teacher(study: CifarLuck, run: Run, kind: str, norm: str, title: str, teacher: str) -> Verdict:
    some = run.select(network_kind=kind, norm=norm)
    accuracy, taught = (some.end(metric)[some.alive] for metric in ("accuracy", "teacher_accuracy"))
    ahead = 100 * (accuracy - taught)
    verdict = mean_above(ahead, -BEHIND, errors=ERRORS, say=f"{number(ahead.mean(), '+.2f')} points")
    often = share((ahead >= ABOVE[0]) & (ahead < ABOVE[1]), at_least=0.5, say="{count}")
    literally = {f"{ABOVE[0]:g} to {ABOVE[1]:g} points above, in half of the networks at least": often}
    return _with_papers_teacher(verdict, run, kind).with_variants(literally)


@claims.claim(
    "D6",
    "{title}, BatchNorm and rank",
    statement="mean rank of the final winners, averaged over layers and the recorded epochs between start and end: "
    f"lower with BatchNorm than without, by more than {ERRORS} standard errors",
    paper="BatchNorm helps achieve a lower mean rank",
    values_are="by how much it is lower, per seed",
    cases=_kinds,
)
def batchnorm_lowers_the_rank(study: CifarLuck, run: Run, kind: str, title: str) -> Verdict:
    rank = _averaged(run, "mean_rank", kind)
    return _with_papers_teacher(_difference(-rank, rank, ".3f"), run, kind)


@claims.claim(
    "D6",
    "{title}, BatchNorm and accuracy",
    statement=f"evaluation accuracy averaged over epochs: higher with BatchNorm than without, by more than {ERRORS} "
    "standard errors",
    paper="BatchNorm accelerates the growth of accuracy",
    values_are="points by which it is higher, per seed",
    cases=_kinds,
)
def batchnorm_is_faster(study: CifarLuck, run: Run, kind: str, title: str) -> Verdict:
    accuracy, rho = (_averaged(run, metric, kind) for metric in ("accuracy", "rho_mean"))
    beside = {
        "mean best correlation, averaged over layers and epochs (paper: not faster)": _difference(rho, rho, ".3f")
    }
    verdict = _difference(100 * accuracy, 100 * accuracy, ".1f")
    return _with_papers_teacher(verdict, run, kind).with_variants(beside)


def _difference(compared: xr.DataArray, shown: xr.DataArray, digits: str) -> Verdict:
    """Decide whether values [norm, seed] are higher with BatchNorm, seed by seed."""
    lead = compared.sel(norm="after") - compared.sel(norm="none")
    after, none = (number(shown.sel(norm=norm).mean().item(), digits) for norm in ("after", "none"))
    return mean_above(lead.to_numpy(), errors=ERRORS, say=f"{after} with, {none} without, in {{count}} seeds better")
