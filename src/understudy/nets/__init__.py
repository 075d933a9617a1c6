"""Networks: always a population of networks of one shape in stacked tensors, and their files."""

from understudy.nets.activation import activate as activate
from understudy.nets.activation import gate as gate
from understudy.nets.io import bn_biases as bn_biases
from understudy.nets.io import load as load
from understudy.nets.io import save as save
from understudy.nets.modules import from_module as from_module
from understudy.nets.modules import from_program as from_program
from understudy.nets.nodes import outgoing_weights as outgoing_weights
from understudy.nets.nodes import with_nodes as with_nodes
from understudy.nets.norm import EPS as EPS
from understudy.nets.norm import MOMENTUM as MOMENTUM
from understudy.nets.norm import Norm as Norm
from understudy.nets.norm import Statistics as Statistics
from understudy.nets.norm import batch_norm as batch_norm
from understudy.nets.norm import evaluation_scale as evaluation_scale
from understudy.nets.norm import fresh_norm as fresh_norm
from understudy.nets.population import Activations as Activations
from understudy.nets.population import Layer as Layer
from understudy.nets.population import Population as Population
from understudy.nets.population import incoming as incoming
from understudy.nets.population import outgoing as outgoing
from understudy.nets.population import stack as stack
from understudy.nets.population import training_pass as training_pass
from understudy.nets.shape import Convolution as Convolution
from understudy.nets.shape import Pool as Pool
from understudy.nets.shape import Shape as Shape
