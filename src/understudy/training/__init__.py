"""Training of student populations: objectives, optimisers, the epoch loop, engines that run steps, and probes.

Start reading at `loop.py` (the epoch loop), which `us.train` (in `lab/train.py`) and studies run. `plan.py` cuts the
work into pieces, `engines/` run the steps, `probes/` measure every network after an epoch, and `records.py` makes
tables of that.
"""

from understudy.training.group import Group as Group
from understudy.training.loop import Training as Training
from understudy.training.objectives import CrossEntropy as CrossEntropy
from understudy.training.objectives import Logistic as Logistic
from understudy.training.objectives import Objective as Objective
from understudy.training.objectives import SquaredError as SquaredError
from understudy.training.optimisers import GD as GD
from understudy.training.optimisers import SGD as SGD
from understudy.training.optimisers import Adam as Adam
from understudy.training.optimisers import Optimiser as Optimiser
from understudy.training.records import Records as Records
