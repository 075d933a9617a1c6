"""What a theorem is (hypotheses, conclusion with constants, measured value), and `check`, which applies all of them."""

from understudy.theory.check import Check as Check
from understudy.theory.check import check as check
from understudy.theory.result import Finding as Finding
from understudy.theory.result import Hypothesis as Hypothesis
from understudy.theory.result import Result as Result
from understudy.theory.result import result as result
from understudy.theory.result import results as results
