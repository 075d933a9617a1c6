"""Growth of student norms relative to each other (Tian 2019, theorem 7, sec. 5.3), and escape from opposite weights.

For ẇ_k = ‖w_k‖ r_k the logarithm of ‖w_k‖ / ‖w_k'‖ grows at rate w̄_kᵀ r_k − w̄_k'ᵀ r_k'. A node's bias counts as one of
its weights, that of an input which is always 1 (sec. 2). The escape from θ = π is in sec. 8.15.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import quad, solve_ivp
from torch import Tensor

from understudy._random import Stream, normal
from understudy.nets import Layer, Population
from understudy.nets.activation import gate
from understudy.nets.population import incoming
from understudy.papers.specialization.theory.spherical import angle, pull
from understudy.theory.gradient_flow import move, velocity
from understudy.theory.result import Finding, above, result

AGREE = 1e-6
_STEP = 1e-5
"""Step relative to a node's length. Errors of a two-sided difference are step² and rounding/step: 10⁻¹⁰ and 10⁻¹¹."""
_ROWS = 1 << 12
"""Samples whose activations are in memory at a time."""
_TIGHT = {"method": "DOP853", "rtol": 1e-11, "atol": 1e-300}
Dynamics = Literal["angle", "both layers", "lower layer"]


class NormRates(NamedTuple):
    """Rates d/dt ln‖w_k‖ of every student node."""

    predicted: Float[Tensor, "net node"]
    """w̄_kᵀ r_k."""
    stepped: Float[Tensor, "net node"]
    """Two-sided difference over a small gradient step."""
    speed: Float[Tensor, "net"]
    """Largest ‖r_k‖ = ‖ẇ_k‖ / ‖w_k‖ of a network, which no rate exceeds."""

    @property
    def off(self) -> Float[Tensor, "net"]:
        """Largest difference between the two over all pairs of nodes, relative to the speed; 0 where nothing moves."""
        difference = self.predicted - self.stepped
        widest = difference.amax(1) - difference.amin(1)
        return torch.where(self.speed > 0, widest / self.speed, widest)


def norm_rates(weights: Float[Tensor, "*net node in"], moving: Float[Tensor, "*net node in"]) -> Tensor:
    """Rates d/dt ln‖w_k‖ = w̄_kᵀ r_k with r_k = ẇ_k / ‖w_k‖ (eqn 63)."""
    return (weights * moving).sum(-1) / weights.square().sum(-1)


def weight_flow(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"]
) -> Float[Tensor, "net node weight"]:
    """Velocity ẇ_k = E[x g_k], g_k = z_k v_kᵀ (f* − f), for two layers and loss ½‖f* − f‖², biases last (eqns 2, 5)."""
    total = torch.zeros_like(weights_and_biases(student.layers[0]))
    for some in x.split(_ROWS):
        gates = gate(incoming(student, 0, some), student.slope)
        g = gates * torch.bmm(teacher(some) - student(some), student.layers[1].weight)
        ones = some if student.layers[0].bias is None else torch.cat([some, some.new_ones(len(some), 1)], 1)
        total += g.mT @ ones
    return total / len(x)


def compare_rates(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> NormRates:
    """Compare the rates that theorem 7 predicts for two-layer networks with small steps of gradient descent."""
    weights, moving = weights_and_biases(student.layers[0]), weight_flow(teacher, student, x)
    speed = (moving.norm(dim=2) / weights.norm(dim=2)).amax(1)
    gradient = velocity(teacher, student, x)
    stepped = torch.zeros_like(weights[..., 0])
    for net, fastest in enumerate(speed.tolist()):
        step = _STEP / fastest if fastest > 0 else _STEP
        moved = [move(student[net], gradient[net], sign * step) for sign in (1, -1)]
        ends = [weights_and_biases(each.layers[0]).norm(dim=2)[0].log() for each in moved]
        stepped[net] = (ends[0] - ends[1]) / (2 * step)
    return NormRates(norm_rates(weights, moving), stepped, speed)


def weights_and_biases(layer: Layer) -> Float[Tensor, "net node weight"]:
    """Weights of the nodes, each with its bias as the last weight."""
    return layer.weight if layer.bias is None else torch.cat([layer.weight, layer.bias.unsqueeze(2)], 2)


@result(
    "S1 theorem 7",
    title="growth of norm ratios",
    statement="The logarithm of the ratio of two student nodes' norms grows at the difference of their alignments with "
    "their velocities.",
    measured="the growth rates of all norm ratios, next to those of a small gradient step",
    subject="dynamics",
    networks="two layers",
)
def norm_ratios(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """Compare theorem 7 with a small gradient step for all pairs of student nodes."""
    least, node = weights_and_biases(student.layers[0]).norm(dim=2)[0].min(0)
    shortest = above(
        "shortest weights of a student node",
        float(least),
        shown=f"{float(least):.3g} (node {int(node)})",
        change="leave nodes without weights out: they have no direction",
    )
    here = "S1 theorem 7", "all pairs of student nodes", (shortest,)
    if not shortest.holds:
        return [Finding(*here, "d/dt ln of the ratio is the difference of w̄ᵀr", "not measured")]
    found = compare_rates(teacher, student, x)
    up, down = int(found.predicted[0].argmax()), int(found.predicted[0].argmin())
    fastest = float(found.predicted[0, up] - found.predicted[0, down])
    off = float(found.off[0])
    return [
        Finding(
            *here,
            f"‖w‖ of node {up} grows fastest relative to that of node {down}: d/dt ln of their ratio is {fastest:.4g}",
            f"a small gradient step gives {float(found.stepped[0, up] - found.stepped[0, down]):.4g}; over all pairs "
            f"of nodes it differs by at most {off:.1e} of the fastest motion",
            off <= AGREE,
        )
    ]


def residues(weights: Tensor, target: Tensor, shares: Tensor, extra: Tensor) -> Float[Tensor, "*net node in"]:
    """The special case r_k = w* − Σ a w + ε_k w* of sec. 5.3: nodes share a target, and node k sees ε_k more of it."""
    left = target - (shares.unsqueeze(-1) * weights).sum(-2)
    return left.unsqueeze(-2) + extra.unsqueeze(-1) * target.unsqueeze(-2)


def shared_target_flow(
    start: Float[Tensor, "net node in"],
    target: Float[Tensor, "net in"],
    shares: Float[Tensor, "net node"],
    extra: Float[Tensor, "net node"],
    times: Sequence[float],
) -> Float[Tensor, "net time node in"]:
    """Integrate ẇ_k = ‖w_k‖ (w* − Σ a w + ε_k w*) from time 0, and return the weights at the given times.

    Without ε every r is a multiple of the first one, so nodes move along r(0) alone and keep their orthogonal part:
    they align with w* as far as they have outgrown their start.
    """
    paths = []
    for w, goal, share, more in zip(start.double(), target.double(), shares.double(), extra.double(), strict=True):

        def moving(
            _: float, state: np.ndarray, like: Tensor = w, rest: tuple[Tensor, ...] = (goal, share, more)
        ) -> Any:
            now = torch.from_numpy(state).reshape(like.shape)
            return (now.norm(dim=-1, keepdim=True) * residues(now, *rest)).flatten().numpy()

        done = solve_ivp(moving, (0.0, max(times)), w.flatten().numpy(), t_eval=list(times), **_TIGHT)
        paths.append(torch.from_numpy(done.y.T.copy()).reshape(len(times), *w.shape))
    return torch.stack(paths)


class Contest(NamedTuple):
    """Trajectory of node 0, which sees more of the target, relative to node 1."""

    log_ratio: Float[Tensor, "net time"]
    """ln ‖w_0‖ / ‖w_1‖."""
    gap: Float[Tensor, "net time"]
    """h_0 − h_1 with h_k = w̄_kᵀ r_k, the derivative of `log_ratio`."""
    cosine: Float[Tensor, "net time"]
    """Cosine between w_1 and w*."""


def contest(seeds: Sequence[int], nodes: int, dim: int, start: float, extra: float, times: Sequence[float]) -> Contest:
    """Simulate nodes from N(0, start²) that share a target of length 1, all with a = 1; node 0 sees 1 + ε of it."""
    w = start * torch.stack([normal(seed, Stream.STUDENT, 0, nodes * dim).reshape(nodes, dim) for seed in seeds])
    target = torch.stack([normal(seed, Stream.TEACHER, 0, dim) for seed in seeds])
    target = target / target.norm(dim=1, keepdim=True)
    shares, more = torch.ones(2, len(seeds), nodes, dtype=torch.float64)
    more = extra * more * (torch.arange(nodes) == 0)
    path = shared_target_flow(w, target, shares, more, times)
    length = path.norm(dim=-1)
    h = (path * residues(path, target.unsqueeze(1), shares.unsqueeze(1), more.unsqueeze(1))).sum(-1) / length
    cosine = (path[:, :, 1] * target.unsqueeze(1)).sum(-1) / length[:, :, 1]
    return Contest((length[..., 0] / length[..., 1]).log(), h[..., 0] - h[..., 1], cosine)


def escape_time(eps: float, until: float = math.pi / 2) -> float:
    """Time that θ̇ = −(π − θ) sin θ needs from π − ε to the angle `until`: ∫ du / (u sin u), u = π − θ from ε.

    It is 1/ε − 1/(π − until) plus the integral of 1/(u sin u) − 1/u², which has no pole.
    """
    end = math.pi - until
    rest = quad(_without_pole, eps, end, epsabs=1e-13, epsrel=1e-13)[0]
    return 1 / eps - 1 / end + rest


def _without_pole(u: float) -> float:
    """1/(u sin u) − 1/u², by its series where the difference would lose digits."""
    if u < 0.05:
        return 1 / 6 + 7 * u**2 / 360 + 31 * u**4 / 15120
    return 1 / (u * math.sin(u)) - 1 / u**2


def integrated_escape_time(dynamics: Dynamics, eps: float, until: float = math.pi / 2) -> float:
    """Integrate the dynamics of one student and one teacher node from the angle π − ε to `until`; weights and output 1.

    `angle` is θ̇ = −(π − θ) sin θ. The other two are gradient flow on the population loss ½E(f* − f)² for standard
    normal inputs in the plane. If `both layers` move and start with v = ‖w‖, they stay balanced (v² − ‖w‖² is
    conserved): then ẇ = ‖w‖ r, as in the paper, and the angle changes 2π times as slowly. If the output weight stays at
    1 and the `lower layer` moves alone, ẇ has no factor ‖w‖: w first shrinks by e^{−t/2}, turns faster the shorter it
    is, and escapes after about 2 ln(1 + π/ε).
    """
    if dynamics == "angle":
        # In u = π − θ, which has all its digits near the start.
        return _first_event(lambda _, u: u * np.sin(u), [eps], lambda _, u: u[0] - (math.pi - until), 2 / eps + 100)
    teacher = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    start = [-math.cos(eps), math.sin(eps), 1.0]
    moves = float(dynamics == "both layers")

    def moving(_: float, state: np.ndarray) -> list[float]:
        w = torch.from_numpy(state[:2])[None]
        v = float(state[2])
        # E[x z (f* − f)]: the student's own term is w/2 times its output weight.
        gap = (pull(teacher, w)[0, 0] - v * w[0] / 2).tolist()
        return [v * gap[0], v * gap[1], moves * (state[0] * gap[0] + state[1] * gap[1])]

    def reached(_: float, state: np.ndarray) -> float:
        return float(angle(teacher[0], torch.from_numpy(state[:2]))) - until

    return _first_event(moving, start, reached, 20 / eps + 1000)


def _first_event(moving: Any, start: list[float], reached: Any, most: float) -> float:
    """Time of the first event."""
    reached.terminal = True
    done = solve_ivp(moving, (0.0, most), np.array(start), events=reached, **_TIGHT)
    return float(done.t_events[0][0]) if len(done.t_events[0]) else math.inf
