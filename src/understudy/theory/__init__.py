"""Theorems of the literature, applied to given networks: papers register them with `@result`, `check` applies them."""

from understudy.theory.check import Check as Check
from understudy.theory.check import NodeCheck as NodeCheck
from understudy.theory.check import check as check
from understudy.theory.result import Finding as Finding
from understudy.theory.result import Hypothesis as Hypothesis
from understudy.theory.result import Known as Known
from understudy.theory.result import Result as Result
from understudy.theory.result import above as above
from understudy.theory.result import at_least as at_least
from understudy.theory.result import at_most as at_most
from understudy.theory.result import find_result as find_result
from understudy.theory.result import result as result
from understudy.theory.result import results as results
