"""Training of networks with several exits (Phuong & Lampert 2019b).

`plan.py` says what is trained, `architectures.py` which networks, `population.py` runs the epochs, `objectives.py` has
the losses, `history.py` what was measured. Engines take the steps: `plain.py` is the reference.
"""

from understudy.training.multi_exit.architectures import OwnNetworks as OwnNetworks
from understudy.training.multi_exit.engine import ExitImages as ExitImages
from understudy.training.multi_exit.history import ExitHistory as ExitHistory
from understudy.training.multi_exit.objectives import ExitObjective as ExitObjective
from understudy.training.multi_exit.plan import ExitNetwork as ExitNetwork
from understudy.training.multi_exit.plan import ExitPlan as ExitPlan
from understudy.training.multi_exit.population import TrainedExits as TrainedExits
from understudy.training.multi_exit.population import train_exits as train_exits
