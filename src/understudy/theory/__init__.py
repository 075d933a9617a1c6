"""The results of the literature, each checked on given networks: hypotheses, conclusion, facts."""

from understudy.theory.batchnorm_energy import energy as energy
from understudy.theory.check import Check as Check
from understudy.theory.check import check as check
from understudy.theory.exact import exactly as exactly
from understudy.theory.identities import lemma_1 as lemma_1
from understudy.theory.induced import TooMany as TooMany
from understudy.theory.interpolation import largest_of_batches as largest_of_batches
from understudy.theory.local_convergence import closed_form as closed_form
from understudy.theory.noisy import recovery as recovery
from understudy.theory.norm_growth import norm_ratios as norm_ratios
from understudy.theory.overlap import near_students as near_students
from understudy.theory.prunable import residuals as residuals
from understudy.theory.result import Finding as Finding
from understudy.theory.result import Hypothesis as Hypothesis
from understudy.theory.result import Result as Result
from understudy.theory.result import result as result
from understudy.theory.result import results as results
from understudy.theory.separation import matrix_gradient as matrix_gradient
from understudy.theory.specialization import theorem_3 as theorem_3
from understudy.theory.spherical import spherical_pull as spherical_pull
from understudy.theory.top_down import lucky_students as lucky_students
