"""Measures of teacher–student pairs: correlation, matching, alignment, fan-out, modulation, observers, timing.

All are functions of tensors, without state or files.
"""

from understudy.measures.align import LayerMatch as LayerMatch
from understudy.measures.align import align as align
from understudy.measures.alignment import MatchedAlignment as MatchedAlignment
from understudy.measures.alignment import Regular as Regular
from understudy.measures.alignment import alignment_eps as alignment_eps
from understudy.measures.alignment import bias_gap as bias_gap
from understudy.measures.alignment import eps_aligned as eps_aligned
from understudy.measures.alignment import matched_alignment as matched_alignment
from understudy.measures.alignment import regular as regular
from understudy.measures.alignment import sin_angle as sin_angle
from understudy.measures.correlation import Correlation as Correlation
from understudy.measures.correlation import correlation as correlation
from understudy.measures.fan_out import contribution as contribution
from understudy.measures.fan_out import fan_out as fan_out
from understudy.measures.layer_pairs import LayerAlignment as LayerAlignment
from understudy.measures.layer_pairs import LayerPair as LayerPair
from understudy.measures.layer_pairs import linear_cka as linear_cka
from understudy.measures.matching import THRESHOLD as THRESHOLD
from understudy.measures.matching import Match as Match
from understudy.measures.matching import Reordered as Reordered
from understudy.measures.matching import best_students as best_students
from understudy.measures.matching import best_teachers as best_teachers
from understudy.measures.matching import diagonal_mass as diagonal_mass
from understudy.measures.matching import mean_best_correlation as mean_best_correlation
from understudy.measures.matching import recovered as recovered
from understudy.measures.matching import recovered_share as recovered_share
from understudy.measures.matching import reorder_students as reorder_students
from understudy.measures.modulation import PARTS as PARTS
from understudy.measures.modulation import LayerModulation as LayerModulation
from understudy.measures.modulation import modulated_fan_out as modulated_fan_out
from understudy.measures.modulation import modulation as modulation
from understudy.measures.observers import MIN_COUNT as MIN_COUNT
from understudy.measures.observers import BandObservers as BandObservers
from understudy.measures.observers import SideObservers as SideObservers
from understudy.measures.observers import observers_in_band as observers_in_band
from understudy.measures.observers import observers_on_both_sides as observers_on_both_sides
from understudy.measures.sample_modulation import SampleModulation as SampleModulation
from understudy.measures.sample_modulation import sample_modulation as sample_modulation
from understudy.measures.timing import final_winner_rank as final_winner_rank
from understudy.measures.timing import first_recovery as first_recovery
from understudy.measures.timing import mean_rank as mean_rank
from understudy.measures.timing import ranks as ranks
