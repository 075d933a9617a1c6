"""What a network is, always as a population of networks of one shape; their files."""

from understudy.nets.activation import activate as activate
from understudy.nets.activation import gate as gate
from understudy.nets.files import load as load
from understudy.nets.files import save as save
from understudy.nets.population import Activations as Activations
from understudy.nets.population import Layer as Layer
from understudy.nets.population import Population as Population
from understudy.nets.population import Shape as Shape
from understudy.nets.population import stack as stack
