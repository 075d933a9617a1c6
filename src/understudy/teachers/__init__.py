"""Construction of teachers, and the assumptions that a teacher meets on given inputs."""

from understudy.teachers.assumptions import Assumptions as Assumptions
from understudy.teachers.assumptions import LayerAssumptions as LayerAssumptions
from understudy.teachers.assumptions import assumptions as assumptions
from understudy.teachers.assumptions import strengths as strengths
from understudy.teachers.biases import half_active as half_active
from understudy.teachers.biases import standardised as standardised
from understudy.teachers.pruned import Pruned as Pruned
from understudy.teachers.pruned import pruned as pruned
from understudy.teachers.rarely_coactive import rarely_coactive as rarely_coactive
from understudy.teachers.separated import crossing as crossing
from understudy.teachers.separated import regular as regular
from understudy.teachers.separated import separated as separated
