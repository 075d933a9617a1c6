"""Models with a latent code: likelihoods of data given a code, encoders, and the modules of the papers."""

from understudy.nets.latent.codes import GaussianCode as GaussianCode
from understudy.nets.latent.files import SavedCodes as SavedCodes
from understudy.nets.latent.files import load_codes as load_codes
from understudy.nets.latent.files import save_codes as save_codes
from understudy.nets.latent.initial import initialise as initialise
from understudy.nets.latent.layers import MLP as MLP
from understudy.nets.latent.layers import Table as Table
from understudy.nets.latent.model import LatentModel as LatentModel
from understudy.nets.latent.sentences import SentenceDecoder as SentenceDecoder
from understudy.nets.latent.sentences import SentenceEncoder as SentenceEncoder
