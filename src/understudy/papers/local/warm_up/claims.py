"""Claim Z5: the order of the loss in the angle between students and a teacher node (Zhou, Ge & Jin 2021, claim 2)."""

import xarray as xr

from understudy.claims import Claims, Verdict, every, number
from understudy.papers.local.shared import log_slope
from understudy.papers.local.warm_up.study import WarmUp
from understudy.store import Run

FROM, TO = 1e-6, 0.1
"""Smallest and largest angle, in rad, of the fit of slopes."""
WITHIN = 0.05
"""Tolerance of a fitted slope."""
_FEWEST = 20
"""Least number of angles on which the claim is decided."""


def approach(run: Run) -> xr.Dataset:
    """By numbers of students and δ: `loss`, `ratio` ‖∇L‖/L and `squared_ratio` ‖∇L‖²/L; all seeds are equal."""
    names = ("delta", "loss", "ratio", "squared_ratio")
    delta, *found = (run.array(name, "students epoch", seed=1) for name in names)
    by_epoch = xr.Dataset(dict(zip(names[1:], found, strict=True)))
    return by_epoch.assign_coords(epoch=delta[0].to_numpy()).rename(epoch="delta")


def fitted(values: xr.DataArray) -> xr.DataArray:
    """The values at angles that slopes are fitted on."""
    return values.sel(delta=slice(TO * (1 + 1e-9)))


def slope(values: xr.DataArray) -> float:
    """Slope of log values in log δ, by least squares; NaN with fewer than two angles."""
    return log_slope(fitted(values)["delta"], fitted(values))


def power(slope: float) -> str:
    """A slope with two digits, without a sign before zero."""
    return number(round(slope, 2) + 0.0, ".2f")


claims = Claims(when=lambda study: study.least <= FROM and study.most >= TO and study.angles >= _FEWEST, tuned_on="")


@claims.claim(
    "Z5",
    "m = {students}, r = 1",
    statement=f"{{who}}: slope of log loss in log δ, by least squares over δ from {number(FROM, 'g')} to {TO:g}, "
    f"within {WITHIN:g} of {{order}}",
    paper="Θ(δ{sign})",
    cases=lambda study, run: [
        {"students": 1, "who": "one student at the angle δ", "order": 2, "sign": "²"},
        {"students": 2, "who": "two students at ±δ with Σ ‖w‖w = w*", "order": 3, "sign": "³"},
    ],
)
def order_of_the_loss(study: WarmUp, run: Run, students: int, order: int, **words: str) -> Verdict:
    found = approach(run).sel(students=students)
    least, loss = found["delta"][0].item(), slope(found["loss"])
    return every(
        [loss],
        at_least=order - WITHIN,
        at_most=order + WITHIN,
        n=len(fitted(found["loss"])),
        say=f"{loss:.4f}; loss/δ^{order} = {found['loss'][0].item() / least**order:.4f} at δ = {least:.0e}; ‖∇L‖²/L is "
        f"proportional to δ^{power(slope(found['squared_ratio']))}, ‖∇L‖/L to δ^{power(slope(found['ratio']))}",
    )
