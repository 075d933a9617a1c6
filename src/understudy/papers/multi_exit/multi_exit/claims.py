"""Claims X1 to X3: what early exits gain from distillation, temperature annealing, and prediction within a budget."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from understudy.claims import Claims, Verdict, every, number
from understudy.papers.multi_exit.multi_exit.results import MODES, Mode, accuracies, curves, differences
from understudy.papers.multi_exit.multi_exit.study import ANNEALED, ExitSetting, MultiExitStudy
from understudy.papers.multi_exit.published import BUDGET, DISTILLATION, LOSSES
from understudy.store import Run

POINTS = 1.5
"""Largest difference from the thesis' accuracies, in points."""
BELOW = 0.1
"""Largest distance of the adjusted confidence below its limit."""
WARM_UP = 10
"""Epochs that the temperature has to adapt."""
GAIN, LOSS = 1.0, 0.5
"""Points that annealing must gain over temperature 1, and may lose to the best constant temperature."""
TEACHERS = 1.0
"""Points by which the choice of teachers changes accuracies, at most."""

claims = Claims(
    free="seeds dtype device data images losses temperatures teachers probe_every engine together repeats "
    "imagenet_repeats",
    when=lambda study: study.temperatures[0] == ANNEALED and study.teachers[0] == "last",
    tuned_on="the learning rate on seed 101",
)


def _trained(study: MultiExitStudy, run: Run) -> Iterator[dict[str, Any]]:
    """Numbers of images and losses that the thesis has too, with enough seeds for a mean."""
    for images in study.images:
        for loss in study.losses:
            if (images, loss) in BUDGET and study.seeds > 1:
                yield {"images": images, "loss": loss}


@claims.claim(
    "X1",
    "CIFAR({images}), {loss}",
    statement="{loss}, {images} images per class: mean top-5 accuracy within 1.5 points of the thesis' for every "
    "budget and for the ensemble of every number of exits",
    paper="tables 6.2 and 6.4",
    values_are="differences in points, by budget and then by ensemble",
    cases=_trained,
)
def accuracies_agree(study: MultiExitStudy, run: Run, images: int, loss: str) -> Verdict:
    off = {mode: differences(run, images, loss, mode) for mode in MODES}
    parts = []
    for mode in MODES:
        ours = accuracies(run, images, loss, mode)
        ends = ", ".join(f"{number(ours.mean[at], '.1f')} ({off[mode][at]:+.1f})" for at in (0, -1))
        parts.append(f"{mode} {ends}".replace("-", "−"))
    verdict = every(np.concatenate(list(off.values())), at_least=-POINTS, at_most=POINTS, n=ours.networks)
    return verdict.say(f"first and last exit, difference from the thesis: {'; '.join(parts)}")


@claims.claim(
    "X1",
    "CIFAR({images}), order",
    statement="{images} images per class, exit 1: mean top-5 accuracy rises from the exit-wise loss to distillation to "
    "semi-supervised distillation",
    paper="tables 6.2 and 6.4",
    when=lambda study: set(LOSSES) <= set(study.losses) and study.seeds > 1,
    cases=lambda study, run: [{"images": images} for images in study.images if images < 500],
)
def losses_in_order(study: MultiExitStudy, run: Run, images: int) -> Verdict:
    found = [accuracies(run, images, loss, "budget") for loss in LOSSES]
    means = np.array([each.mean[0] for each in found])
    words = ", ".join(f"{loss} {number(mean, '.1f')}" for loss, mean in zip(LOSSES, means, strict=True))
    steps = np.diff(means)
    return Verdict(bool((steps > 0).all()), words, min(each.networks for each in found), tuple(means.tolist()))


@claims.claim(
    "X2",
    "confidence, CIFAR({images})",
    statement="the teacher's confidence at the annealed temperature stays within 0.1 below its limit {confidence:g}, "
    f"in every epoch after the first {WARM_UP}",
    paper="roughly constant, and slightly below the limit (fig. 6.6)",
    values_are="mean confidence of epochs",
    when=lambda study: DISTILLATION in study.losses,
    cases=lambda study, run: [{"images": images} for images in study.images],
)
def confidence_is_kept(study: MultiExitStudy, run: Run, images: int) -> Verdict:
    networks = accuracies(run, images, DISTILLATION, "budget").network
    adjusted = curves(run, "adjusted", networks.tolist())
    late = adjusted[adjusted.index > WARM_UP]
    verdict = every(late, at_least=study.confidence - BELOW, at_most=study.confidence, n=len(networks))
    inside = ((late >= study.confidence - BELOW) & (late <= study.confidence)).to_numpy()
    return verdict.say(f"{number(late.min(axis=None), '.3f')} to {number(late.max(axis=None), '.3f')}").also(
        f"within in {inside.mean():.1%} of the epochs"
    )


def _constants(study: MultiExitStudy) -> list[str]:
    return [each for each in study.temperatures if each != ANNEALED]


def _by_temperature(study: MultiExitStudy, run: Run, images: int, mode: Mode) -> dict[str, np.ndarray]:
    """Mean top-5 accuracy for each number of exits, by temperature."""
    return {
        each: accuracies(run, images, ExitSetting(DISTILLATION, each, "last").label, mode).mean
        for each in study.temperatures
    }


@claims.claim(
    "X2",
    "T = 1, CIFAR({images})",
    statement="temperature 1: top-5 accuracy of exit 1 at least a point below that with annealing",
    paper="no temperature leads to significant accuracy drops (fig. 6.7)",
    when=lambda study: DISTILLATION in study.losses and any(float(each) == 1 for each in _constants(study)),
    cases=lambda study, run: [{"images": images} for images in study.images],
)
def temperature_one_is_worse(study: MultiExitStudy, run: Run, images: int) -> Verdict:
    found = _by_temperature(study, run, images, "budget")
    one = next(each for each in _constants(study) if float(each) == 1)
    gain = found[ANNEALED][0] - found[one][0]
    words = f"annealed {number(found[ANNEALED][0], '.1f')}, T = 1 {number(found[one][0], '.1f')}"
    return every([gain], at_least=GAIN, n=study.seeds, say=words)


@claims.claim(
    "X2",
    "constant temperatures, CIFAR({images})",
    statement="annealing: top-5 accuracy at most half a point below that of the best constant temperature, for exit 1 "
    "and on average over budgets",
    paper="as well as, or better than any choice of a constant temperature (fig. 6.7)",
    values_are="annealed minus best constant temperature, in points: exit 1, then the mean over budgets",
    when=lambda study: DISTILLATION in study.losses and len(_constants(study)) > 1,
    cases=lambda study, run: [{"images": images} for images in study.images],
)
def annealing_is_enough(study: MultiExitStudy, run: Run, images: int) -> Verdict:
    found = _by_temperature(study, run, images, "budget")
    least, words = [], []
    for name, measure in (("exit 1", lambda each: each[0]), ("mean", np.mean)):
        values = {each: float(measure(accuracy)) for each, accuracy in found.items()}
        best = max(values[each] for each in _constants(study))
        least.append(values[ANNEALED] - best)
        each = ", ".join(f"T = {at} {number(values[at], '.1f')}" for at in _constants(study))
        words.append(f"{name}: annealed {number(values[ANNEALED], '.1f')}, {each}")
    return every(least, at_least=-LOSS, n=study.seeds, say="; ".join(words))


@claims.claim(
    "X3",
    "choice of teachers, CIFAR({images})",
    statement="learning from all later exits changes top-5 accuracy by less than a point, for every budget and every "
    "ensemble",
    paper="very similar accuracy (fig. E.1)",
    values_are="differences in points, by budget and then by ensemble",
    when=lambda study: DISTILLATION in study.losses and len(study.teachers) > 1,
    cases=lambda study, run: [{"images": images} for images in study.images],
)
def teachers_matter_little(study: MultiExitStudy, run: Run, images: int) -> Verdict:
    last, later = (ExitSetting(DISTILLATION, ANNEALED, each).label for each in ("last", "later"))
    off = [accuracies(run, images, later, mode).mean - accuracies(run, images, last, mode).mean for mode in MODES]
    return every(np.concatenate(off), above=-TEACHERS, below=TEACHERS, n=study.seeds, say="{range:.2f} points")


@claims.claim(
    "X3",
    "time of each exit, {device}",
    statement="on {device}, later exits take longer, and the ensemble of all exits takes longer than the last one",
    paper="CIFAR network, exits 1 and 11: CPU 24 and 105 ms, ensemble 219 ms; GPU 7 and 41 ms, ensemble 45 ms "
    "(table E.1)",
    values_are="median ms of exits 1 to 11, then of their ensembles",
    cases=lambda study, run: [{"device": device} for device in dict.fromkeys(run.table("times").to_pandas()["device"])],
)
def later_exits_take_longer(study: MultiExitStudy, run: Run, device: str) -> Verdict:
    times = run.table("times").to_pandas()
    times = times[(times["architecture"] == "cifar") & (times["device"] == device)]
    single, ensemble = (times[times["mode"] == mode]["median"].to_numpy(float) for mode in MODES)
    steps = np.diff(single)
    words = (
        f"exit 1 {number(single[0], '.3g')} ms, exit {len(single)} {number(single[-1], '.3g')} ms, ensemble "
        f"{number(ensemble[-1], '.3g')} ms (medians); {int((steps > 0).sum())} of {len(steps)} steps longer"
    )
    holds = bool((steps > 0).all() and ensemble[-1] > single[-1])
    values = tuple(np.concatenate((single, ensemble)).tolist())
    return Verdict(holds, words, int(times["repeats"].iloc[0]), values)
