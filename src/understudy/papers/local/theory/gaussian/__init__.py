"""Loss, gradient and residual of two-layer networks on standard normal inputs in closed form.

The networks are those of Zhou, Ge & Jin 2021, definition 1: students f(x) = Σ ‖w_j‖ |w_jᵀx| and a teacher
f*(x) = Σ |w*_iᵀx|. Relative precision is kept for losses far below 10⁻¹² (see `closed_forms`).
"""

from understudy.papers.local.theory.gaussian.closed_forms import can_take_steps as can_take_steps
from understudy.papers.local.theory.gaussian.closed_forms import gradient as gradient
from understudy.papers.local.theory.gaussian.closed_forms import gradient_in_tensors as gradient_in_tensors
from understudy.papers.local.theory.gaussian.closed_forms import hermite as hermite
from understudy.papers.local.theory.gaussian.closed_forms import kernel as kernel
from understudy.papers.local.theory.gaussian.closed_forms import loss as loss
from understudy.papers.local.theory.gaussian.closed_forms import loss_and_gradient as loss_and_gradient
from understudy.papers.local.theory.gaussian.closed_forms import (
    loss_and_gradient_in_tensors as loss_and_gradient_in_tensors,
)
from understudy.papers.local.theory.gaussian.closed_forms import take_steps as take_steps
from understudy.papers.local.theory.gaussian.pairs import gram_of_signs as gram_of_signs
from understudy.papers.local.theory.gaussian.pairs import least_eigenvalue as least_eigenvalue
from understudy.papers.local.theory.gaussian.pairs import second_moment as second_moment
from understudy.papers.local.theory.gaussian.residual import Residual as Residual
from understudy.papers.local.theory.gaussian.residual import decompose_residual as decompose_residual
