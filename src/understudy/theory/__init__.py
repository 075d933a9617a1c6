"""Theorems of the literature, applied to given networks.

A result (theorem, lemma or corollary) is a function of a teacher, a student and inputs that a paper registers with
`@result`. It returns findings: its hypotheses one by one, its conclusion with explicit constants, and the measured
value. `check` applies all registered results to one pair of networks; `us.check` applies them to populations and
runs.

- `result`: registration, `Hypothesis` and its constructors, `Finding`
- `check`, `summary`, `page`: all results on one pair, summaries of several pairs, the page of the documentation
- `boundaries`, `pair_geometry`, `isolation`, `conditions`: decision boundaries, gradients and the data near them
- `gradient_flow`, `flows`: the velocity of every parameter, and adaptive solvers that follow a flow
- `unexplained`: losses as a share of the output variance
"""

from understudy.theory.check import Check as Check
from understudy.theory.check import NodeCheck as NodeCheck
from understudy.theory.check import check as check
from understudy.theory.result import Finding as Finding
from understudy.theory.result import Hypothesis as Hypothesis
from understudy.theory.result import Result as Result
from understudy.theory.result import above as above
from understudy.theory.result import at_least as at_least
from understudy.theory.result import at_most as at_most
from understudy.theory.result import find_result as find_result
from understudy.theory.result import result as result
from understudy.theory.result import results as results
