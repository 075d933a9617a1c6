"""Kinds of figures: each is filled with arrays, and drawn for paper and for the page."""

from understudy.report.figures.best_correlation import BestCorrelation as BestCorrelation
from understudy.report.figures.correlation_matrix import CorrelationMatrix as CorrelationMatrix
from understudy.report.figures.dots import Dots as Dots
from understudy.report.figures.focus_shift import FocusShift as FocusShift
from understudy.report.figures.hyperplanes import Hyperplanes as Hyperplanes
from understudy.report.figures.layer_curves import LayerCurves as LayerCurves
from understudy.report.figures.layer_specialization import LayerSpecialization as LayerSpecialization
from understudy.report.figures.lines import Lines as Lines
from understudy.report.figures.lines import Panel as Panel
from understudy.report.figures.lines import Series as Series
from understudy.report.figures.loss_curves import LossCurves as LossCurves
from understudy.report.figures.matrix_images import MatrixImages as MatrixImages
from understudy.report.figures.matrix_images import OrderedMatrix as OrderedMatrix
from understudy.report.figures.recovery_rate import RecoveryRate as RecoveryRate
from understudy.report.figures.recovery_time import RecoveryTime as RecoveryTime
from understudy.report.figures.sample_curves import SampleCurves as SampleCurves
from understudy.report.figures.signed_histograms import SignedHistograms as SignedHistograms
from understudy.report.figures.specialization import Specialization as Specialization
from understudy.report.figures.specialization import StudentNodes as StudentNodes
from understudy.report.figures.trajectories import Plane as Plane
from understudy.report.figures.trajectories import Trajectories as Trajectories

KINDS = (
    RecoveryRate,
    BestCorrelation,
    Specialization,
    LossCurves,
    FocusShift,
    Hyperplanes,
    SampleCurves,
    CorrelationMatrix,
    RecoveryTime,
    Dots,
    LayerCurves,
    LayerSpecialization,
    MatrixImages,
    SignedHistograms,
    Lines,
    Trajectories,
)
"""Every kind: what is listed here is held to the contract that the tests state."""
