"""Objectives, optimisers, the loop over epochs, and the engines that take the steps."""

from understudy.training.group import Group as Group
from understudy.training.loop import Trained as Trained
from understudy.training.loop import Training as Training
from understudy.training.loop import train as train
from understudy.training.objectives import CrossEntropy as CrossEntropy
from understudy.training.objectives import Logistic as Logistic
from understudy.training.objectives import Objective as Objective
from understudy.training.objectives import SquaredError as SquaredError
from understudy.training.optimisers import GD as GD
from understudy.training.optimisers import SGD as SGD
from understudy.training.optimisers import Adam as Adam
from understudy.training.optimisers import Optimiser as Optimiser
from understudy.training.records import Records as Records
