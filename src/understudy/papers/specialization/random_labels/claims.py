"""Claim P4: students fit structured and random labels, and generalise and specialise with structured ones only."""

import numpy as np

from understudy.claims import Claims, Verdict, every, mean_above
from understudy.papers.specialization.random_labels.study import LabelledStudents
from understudy.store import Run

FITTED = 0.05
"""Training cross-entropy, averaged over an epoch, at which labels count as fitted: at most FITTED / log 2, 7%, of the
steps' samples are then classified wrongly."""
GENERALISES = 0.5
"""Least mean accuracy of students that generalise; chance is 1 / C."""
WIDE, NARROW = (16.0, 40.0), 4.0
"""Over-realizations at which both kinds of labels are fitted, and at which only structured ones are."""

claims = Claims(
    fixed="labels dim teacher_nodes outputs multiple train evaluation lr epochs steps batch",
    least={"seeds": 8},
    tuned_on="seeds 101 to 104",
)


def at_end(run: Run, metric: str, labels: str, multiples: tuple[float, ...] = WIDE) -> np.ndarray:
    """Values after training [multiple, seed]."""
    return run.array(metric, "multiple seed", labels=labels, multiple=list(multiples)).to_numpy()


def rise(run: Run, labels: str, multiples: tuple[float, ...] = WIDE) -> np.ndarray:
    """Mean best correlation after training less that before [multiple, seed]."""
    rho = run.array("rho_mean", "multiple seed epoch", labels=labels, multiple=list(multiples), layer=0)
    return (rho.isel(epoch=-1) - rho.isel(epoch=0)).to_numpy()


@claims.claim(
    "P4",
    "both are fitted",
    statement=f"at 16× and 40× the training loss is at most {FITTED:g}, with structured and with random labels, in "
    "every network",
    paper="zero training error",
    values_are="training cross-entropy, per network",
)
def both_are_fitted(study: LabelledStudents, run: Run) -> Verdict:
    losses = [at_end(run, "train_loss", kind) for kind in ("structured", "random")]
    words = "medians {:.2g} and {:.2g}".format(*(np.nanmedian(each) for each in losses))
    return every(np.stack(losses), at_most=FITTED, say=f"{words}, largest {{most:.2g}}")


@claims.claim(
    "P4",
    "random labels need more nodes",
    statement=f"at 4× the training loss is at most {FITTED:g} with structured labels and above it with random ones, in "
    "every network",
    paper="a teacher of random labels has many nodes",
    values_are="training cross-entropy with random labels, per network",
)
def random_labels_need_more_nodes(study: LabelledStudents, run: Run) -> Verdict:
    structured, random = (at_end(run, "train_loss", kind, (NARROW,)) for kind in ("structured", "random"))
    fitted = every(structured, at_most=FITTED, say="structured {range:.2g}")
    return every(random, above=FITTED, say="random {range:.2g}") & fitted


@claims.claim(
    "P4",
    "structured labels generalise",
    statement=f"at 16× and 40× the mean evaluation accuracy with structured labels is above {GENERALISES:.0%} by more "
    "than 2 standard errors",
    paper="good generalization",
    values_are="accuracy, mean of both widths, per seed",
)
def structured_labels_generalise(study: LabelledStudents, run: Run) -> Verdict:
    return mean_above(at_end(run, "accuracy", "structured").mean(0), GENERALISES, errors=2, say="mean {mean:.3f}")


@claims.claim(
    "P4",
    "random labels do not",
    statement="at 16× and 40× the mean evaluation accuracy with random labels is not above chance (1 / C) by more than "
    "2 standard errors",
    paper="random performance",
    values_are="chance less accuracy, mean of both widths, per seed",
)
def random_labels_do_not_generalise(study: LabelledStudents, run: Run) -> Verdict:
    below = 1 / study.outputs - at_end(run, "accuracy", "random").mean(0)
    return mean_above(below, errors=-2, say="chance less accuracy {mean:.4f}")


@claims.claim(
    "P4",
    "specialization",
    statement="at 16× and 40× the mean best correlation with the teacher rises more during training with structured "
    "labels than with random ones, by at least 0.2 and 2 standard errors",
    paper="students match the nodes of the underlying teacher",
    values_are="difference of the rises, mean of both widths, per seed",
)
def specialise_with_structured_labels(study: LabelledStudents, run: Run) -> Verdict:
    structured, random = rise(run, "structured").mean(0), rise(run, "random").mean(0)
    words = f"rises {np.nanmean(structured):.3f} and {np.nanmean(random):.3f}; difference {{mean:.3f}}"
    return mean_above(structured - random, 0.2, errors=2, say=words)
