"""The results of the literature, each checked on given networks: hypotheses, conclusion, facts."""

from understudy.theory.result import Finding as Finding
from understudy.theory.result import Hypothesis as Hypothesis
from understudy.theory.result import Result as Result
from understudy.theory.result import result as result
from understudy.theory.result import results as results
