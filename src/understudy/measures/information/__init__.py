"""Information between the code and the data of a model: by quadrature, or by nested Monte Carlo with an interval."""

from understudy.measures.information.estimate import Information as Information
from understudy.measures.information.estimate import information as information
from understudy.measures.information.limits import Limit as Limit
from understudy.measures.information.limits import information_limit as information_limit
from understudy.measures.information.nested import NestedEstimate as NestedEstimate
from understudy.measures.information.nested import nested_information as nested_information
from understudy.measures.information.posterior import Gap as Gap
from understudy.measures.information.posterior import Posterior as Posterior
from understudy.measures.information.posterior import encoder_gap as encoder_gap
from understudy.measures.information.posterior import posterior as posterior
