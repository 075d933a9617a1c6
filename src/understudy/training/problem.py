"""Problem: the tensors on which an engine trains some networks."""

from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from understudy.training.objectives import Objective
from understudy.training.optimisers import Optimiser
from understudy.training.packing import Packing


@dataclass(frozen=True, eq=False)
class Problem:
    """Training data of E networks of one shape. Networks of one seed share inputs, those of one teacher targets."""

    packing: Packing
    objective: Objective
    optimiser: Optimiser
    inputs: Float[Tensor, "set sample in"]
    targets: Float[Tensor, "teacher sample out"]
    set_of: Int[Tensor, "net"]
    teacher_of: Int[Tensor, "net"]
    seeds: Int[Tensor, "net"]
    rate: Float[Tensor, "net"]

    def __len__(self) -> int:
        return len(self.seeds)

    def pick(self, which: Int[Tensor, "some"]) -> "Problem":
        """Select some of the networks."""
        per_net = {name: getattr(self, name)[which] for name in ("set_of", "teacher_of", "seeds", "rate")}
        return replace(self, **per_net)
