"""Claim D6: correlations grow, and students come close to their teacher's accuracy (Tian et al. 2019, fig. 9)."""

import numpy as np

from understudy.claims import Claims, Verdict, every, number
from understudy.papers.luck.cifar_luck.study import CifarLuck
from understudy.store import Run

KINDS = {"fc": "FC", "cnn": "ConvNet"}
NORMS = {"none": "no BatchNorm", "after": "BatchNorm"}
_TEACHERS = {"fc": 0.5495, "cnn": 0.864}
"""Accuracy of the paper's teachers (Tian et al. 2019, sec. 5.1)."""
BEHIND = 0.01
"""Most by which the accuracy of students may be below that of their teacher."""

claims = Claims(
    fixed="fc_layers cnn_layers over_realization train evaluation", least={"epochs": 10, "teacher_epochs": 10}
)


def _settings(study: CifarLuck, run: Run) -> list[dict[str, str]]:
    """Kinds of networks and BatchNorms with a network that did not diverge."""
    return [
        {"kind": kind, "norm": norm, "title": f"{KINDS[kind]}, {NORMS[norm]}", "teacher": f"{_TEACHERS[kind]:.1%}"}
        for kind in study.networks
        for norm in study.norm
        if run.select(network_kind=kind, norm=norm).alive.any()
    ]


@claims.claim(
    "D6",
    "{title}, correlation",
    statement="mean best correlation is higher at the end of training than before, at every layer of every network",
    paper="grows",
    values_are="growth, per network and layer",
    cases=_settings,
)
def correlation_grows(study: CifarLuck, run: Run, kind: str, norm: str, title: str, teacher: str) -> Verdict:
    rho = run.array("rho_mean", "seed layer epoch", network_kind=kind, norm=norm).dropna("seed", how="all").to_numpy()
    start, end = (", ".join(number(r, ".2f") for r in rho[..., epoch].mean(axis=0)) for epoch in (0, -1))
    words = f"{start} to {end}, from the lowest layer up"
    return every(rho[..., -1] - rho[..., 0], above=0.0, n=len(rho), say=words)


@claims.claim(
    "D6",
    "{title}, accuracy",
    statement=f"evaluation accuracy, mean over seeds: at most {100 * BEHIND:g} point below the teacher's",
    paper="often about 1 point above; teacher {teacher}",
    values_are="points above the teacher, per network",
    cases=_settings,
)
def close_to_the_teacher(study: CifarLuck, run: Run, kind: str, norm: str, title: str, teacher: str) -> Verdict:
    some = run.select(network_kind=kind, norm=norm)
    accuracy, taught = (some.end(metric)[some.alive] for metric in ("accuracy", "teacher_accuracy"))
    ahead = accuracy - taught
    words = f"{number(100 * ahead.mean(), '+.2f')} points; teacher {np.mean(taught):.1%}"
    return Verdict(bool(ahead.mean() >= -BEHIND), words, len(ahead)).show(100 * ahead, low=-100 * BEHIND)
