"""Kinds of figures: each is built from arrays and drawn for paper and for the page."""

from understudy.report.figures.areas import Areas as Areas
from understudy.report.figures.correlation_matrix import CorrelationMatrix as CorrelationMatrix
from understudy.report.figures.curves import Curves as Curves
from understudy.report.figures.curves import Panel as Panel
from understudy.report.figures.curves import Series as Series
from understudy.report.figures.dots import Dots as Dots
from understudy.report.figures.focus_shift import FocusShift as FocusShift
from understudy.report.figures.fold_sets import FoldPanel as FoldPanel
from understudy.report.figures.fold_sets import FoldSets as FoldSets
from understudy.report.figures.hyperplanes import Hyperplanes as Hyperplanes
from understudy.report.figures.layer_matrix import LayerMatrix as LayerMatrix
from understudy.report.figures.layer_specialization import LayerSpecialization as LayerSpecialization
from understudy.report.figures.layered_graph import LayeredGraph as LayeredGraph
from understudy.report.figures.matrix_images import MatrixImages as MatrixImages
from understudy.report.figures.matrix_images import OrderedMatrix as OrderedMatrix
from understudy.report.figures.pictures import Pictures as Pictures
from understudy.report.figures.recovery_time import RecoveryTime as RecoveryTime
from understudy.report.figures.sentence_list import SentenceList as SentenceList
from understudy.report.figures.signed_histograms import SignedHistograms as SignedHistograms
from understudy.report.figures.specialization import Specialization as Specialization
from understudy.report.figures.specialization import StudentNodes as StudentNodes
from understudy.report.figures.trajectories import PlaneTrajectories as PlaneTrajectories
from understudy.report.figures.trajectories import Trajectories as Trajectories

KINDS = (
    Specialization,
    FocusShift,
    Hyperplanes,
    CorrelationMatrix,
    LayerMatrix,
    RecoveryTime,
    Dots,
    LayerSpecialization,
    MatrixImages,
    SignedHistograms,
    Curves,
    Trajectories,
    FoldSets,
    LayeredGraph,
    Pictures,
    Areas,
    SentenceList,
)
"""Every kind of figure; tests/contracts checks each kind listed here."""
