"""Networks with the same output (Zhou, Ge & Jin 2021, claim 1 and appendix A), and node arrangements for lemma 10.

ReLU(z) = ½ z + ½ |z|: on symmetric inputs a ReLU network is the sum of a linear function and a network of |·|, which
are uncorrelated. Students of zero loss therefore lie on the lines of teacher nodes (theorem 2 for the |·| part), but
may point in either direction along them as long as Σ ‖w_j‖ w_j = Σ w*_i. If the linear part is fitted separately,
their signs do not matter.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.papers.local.theory import starts
from understudy.papers.local.theory.gaussian.pairs import angles, units
from understudy.papers.local.theory.geometry import least_angle

_DRAWS = 2_000
_LENGTHS = 0.5, 2.0
"""Range of the length of the last node of a teacher that sums to zero; the other nodes have length 1."""
_STEPS = 64
"""Steps on samples whose samples are drawn at once."""
_ANGLE = 0.3
"""Initial angle in radians from the opposite nodes."""


def zero_sum_teachers(
    count: int, size: int, seeds: Sequence[int], separation: float = 0.5
) -> Float[Tensor, "net teacher in"]:
    """Draw teachers whose nodes sum to zero (appendix A.2), at angles of at least `separation` up to sign."""
    if count < 3 or size < 2:
        raise UserError(
            "teachers that sum to zero need at least 3 nodes, since two would be opposite, and 2 inputs, got "
            f"{count} nodes of {size} inputs"
        )
    return torch.stack([_draw_zero_sum(count, size, seed, separation) for seed in seeds])


def _draw_zero_sum(count: int, size: int, seed: int, separation: float) -> Float[Tensor, "teacher in"]:
    for draw in range(_DRAWS):
        nodes, _ = units(normal(seed, Stream.TEACHER, draw, (count - 1) * size).view(-1, size))
        nodes = torch.cat([nodes, -nodes.sum(0, keepdim=True)])
        if _LENGTHS[0] <= nodes[-1].norm() <= _LENGTHS[1] and least_angle(nodes) >= separation:
            return nodes
    raise UserError(
        f"found no {count} nodes of {size} inputs that sum to zero at angles of {separation:g} or more in "
        f"{_DRAWS:,} draws: choose fewer nodes or more inputs"
    )


def opposite_students(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net teacher in"]:
    """Students ‖w_i‖ w_i = −w*_i of appendix A.2: zero loss for ReLU if the teacher's nodes sum to zero.

    f − f* = −Σ w*_iᵀx; the proof prints 2 Σ w*_iᵀx, which is zero as well.
    """
    directions, lengths = units(teachers)
    return -lengths.sqrt().unsqueeze(-1) * directions


def teacher_angles(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"]
) -> tuple[Float[Tensor, "*net student"], Float[Tensor, "*net student"]]:
    """Angle of each student with the nearest teacher node: of directions in [0, π], and of lines in [0, π/2].

    Directions matter for ReLU, only lines for |·|.
    """
    pairs = angles(units(students)[0], units(teachers)[0])
    return pairs.angle.amin(-1), pairs.folded.amin(-1)


def opposite_starts(
    teachers: Float[Tensor, "net teacher in"], students: int, seeds: Sequence[int]
) -> Float[Tensor, "net student in"]:
    """Students at 0.3 rad from the opposite of teacher nodes: near their lines, but with the wrong orientation."""
    return starts.place_near(-teachers, students, _ANGLE, seeds).students


def descend_on_samples(
    students: Float[Tensor, "net student in"],
    teachers: Float[Tensor, "net teacher in"],
    rate: float,
    probes: Sequence[int],
    batch: int,
    seeds: Sequence[int],
    linear: bool,
) -> tuple[Float[Tensor, "probe net student in"], Float[Tensor, "probe net in"]]:
    """Descend on ½ mean R², R = βᵀx + Σ ‖w_j‖ ReLU(w_jᵀx) − Σ ReLU(w*_iᵀx), over fresh samples in every step.

    With `linear`, β is first fitted to the same samples by least squares (eq. 6); its expectation is `linear_term`,
    and what is left is in expectation a quarter of the loss of |·| students. Without it β = 0 (eq. 5). On a CPU the
    result of a network does not depend on the other networks.

    Returns:
        Students and β at each probe; students are NaN from the probe at which they are no longer finite.

    Raises:
        UserError: there are fewer samples than inputs.
    """
    size = students.shape[-1]
    if batch < size:
        raise UserError(f"a linear term of {size} inputs needs at least as many samples, got {batch}")
    shape, count = (_STEPS, batch, size), _STEPS * batch * size
    if students.device.type != "cpu":
        names, device = torch.tensor(list(seeds)), str(students.device)

        def draw_all(part: int) -> Tensor:
            return normal(names, Stream.TRAIN, part, count, device).unflatten(-1, shape).transpose(0, 1)

        return _descend_on(draw_all, students, teachers, rate, probes, linear)

    def descend_one(i: int, seed: int) -> tuple[Tensor, Tensor]:
        def draw(part: int) -> Tensor:
            return normal(seed, Stream.TRAIN, part, count).view(shape)

        return _descend_on(draw, students[i], teachers[i], rate, probes, linear)

    path, terms = (torch.stack(parts, 1) for parts in zip(*map(descend_one, range(len(seeds)), seeds), strict=True))
    return path, terms


def _descend_on(
    draw: Callable[[int], Tensor], students: Tensor, teachers: Tensor, rate: float, probes: Sequence[int], linear: bool
) -> tuple[Tensor, Tensor]:
    """Students and β at each probe, of one network or of several; `draw` returns the samples of `_STEPS` steps."""
    now, kept, asked = students, [], set(probes)
    for step in range(probes[-1] + 1):
        if step % _STEPS == 0:
            drawn = draw(step // _STEPS)
        x = drawn[step % _STEPS]
        directions, lengths = units(now)
        before = x @ now.mT
        residual = before.clamp_min(0) @ lengths.unsqueeze(-1) - (x @ teachers.mT).clamp_min(0).sum(-1, keepdim=True)
        term = torch.zeros_like(x[..., :1, :]).mT
        if linear:
            term = -torch.linalg.solve(x.mT @ x, x.mT @ residual)
            residual = residual + x @ term
        if step in asked:
            kept.append((now, term.squeeze(-1)))
        pulls = ((before > 0) * residual).mT @ x / x.shape[-2]
        along = (pulls * directions).sum(-1, keepdim=True)
        now = now - rate * lengths.unsqueeze(-1) * (pulls + along * directions)
    path, terms = (torch.stack(parts) for parts in zip(*kept, strict=True))
    alive = path.isfinite().all(-1).all(-1)[..., None, None]
    return torch.where(alive, path, torch.nan), terms


def linear_term(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"]
) -> Float[Tensor, "*net in"]:
    """β = ½ Σ w*_i − ½ Σ ‖w_j‖ w_j, which minimises eq. 6 over normal inputs (A.1)."""
    ours = (torch.linalg.vector_norm(students, dim=-1, keepdim=True) * students).sum(-2)
    return (teachers.sum(-2) - ours) / 2


def fan(count: int, spacing: float) -> Float[Tensor, "node 2"]:
    """Unit vectors in the plane, each at an angle of `spacing` from the previous one."""
    angle = spacing * torch.arange(count, dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], 1)
