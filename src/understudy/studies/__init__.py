"""One file a family of figures: what to train, what to measure, which figures to draw, which claims follow."""

from understudy.studies.batchnorm_energy import BatchNormEnergy as BatchNormEnergy
from understudy.studies.bn_bias import BatchNormBias as BatchNormBias
from understudy.studies.certificates import Certificates as Certificates
from understudy.studies.cifar import Cifar as Cifar
from understudy.studies.cifar_luck import CifarLuck as CifarLuck
from understudy.studies.cifar_teacher import CifarTeacher as CifarTeacher
from understudy.studies.data_geometry import DataGeometry as DataGeometry
from understudy.studies.deep import Deep as Deep
from understudy.studies.deep_samples import DeepSamples as DeepSamples
from understudy.studies.dynamics import NodeDynamics as NodeDynamics
from understudy.studies.focus_shift import FocusShifting as FocusShifting
from understudy.studies.gaus import Gaus as Gaus
from understudy.studies.hyperplanes import MovingHyperplanes as MovingHyperplanes
from understudy.studies.identifiability import Identifiability as Identifiability
from understudy.studies.initialisation import Initialisation as Initialisation
from understudy.studies.linear_distillation import LinearDistillation as LinearDistillation
from understudy.studies.local_rate import LocalRate as LocalRate
from understudy.studies.lottery import LotteryTickets as LotteryTickets
from understudy.studies.lucky_init import LuckyInit as LuckyInit
from understudy.studies.matrix_dynamics import MatrixDynamics as MatrixDynamics
from understudy.studies.mnist_classifier import MnistClassifier as MnistClassifier
from understudy.studies.monotonicity import Monotonicity as Monotonicity
from understudy.studies.optimisation_bias import OptimisationBias as OptimisationBias
from understudy.studies.orthogonal import Orthogonal as Orthogonal
from understudy.studies.orthogonal_mnist import OrthogonalMnist as OrthogonalMnist
from understudy.studies.over_parameterization import OverParameterization as OverParameterization
from understudy.studies.prune_and_connect import PruneAndConnect as PruneAndConnect
from understudy.studies.prune_and_connect_students import SecondDraw as SecondDraw
from understudy.studies.regimes import Regimes as Regimes
from understudy.studies.study import Study as Study
from understudy.studies.teacher_aware import TeacherAwareData as TeacherAwareData
from understudy.studies.two_layer import TwoLayer as TwoLayer
from understudy.studies.warm_up import WarmUp as WarmUp

_ALL: tuple[type[Study], ...] = (
    TwoLayer,
    FocusShifting,
    MovingHyperplanes,
    TeacherAwareData,
    Deep,
    DeepSamples,
    Gaus,
    OverParameterization,
    LotteryTickets,
    CifarTeacher,
    Cifar,
    CifarLuck,
    BatchNormBias,
    MatrixDynamics,
    BatchNormEnergy,
    LuckyInit,
    NodeDynamics,
    PruneAndConnect,
    SecondDraw,
    Certificates,
    LocalRate,
    Regimes,
    WarmUp,
    Identifiability,
    Initialisation,
    Orthogonal,
    MnistClassifier,
    OrthogonalMnist,
    OptimisationBias,
    LinearDistillation,
    DataGeometry,
    Monotonicity,
)

STUDIES: dict[str, type[Study]] = {study.name: study for study in _ALL}
"""Every study by the name that the command line knows."""
