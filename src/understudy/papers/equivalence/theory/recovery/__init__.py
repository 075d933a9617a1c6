"""Parameters of a ReLU network from the function alone (Phuong & Lampert 2020, made constructive).

Folds are found along lines (`lines`), followed through the cells of the layers already known (`unit`), and collected
layer by layer (`layer`, `search`); the output layer follows by least squares (`output`).
"""

from understudy.papers.equivalence.theory.recovery.recover import recover_network as recover_network
from understudy.papers.equivalence.theory.recovery.recovered import Recovered as Recovered
