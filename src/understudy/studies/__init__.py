"""One file a family of figures: what to train, what to measure, which figures to draw, which claims follow."""

from understudy.studies.study import Study as Study
from understudy.studies.two_layer import TwoLayer as TwoLayer

STUDIES: dict[str, type[Study]] = {study.name: study for study in (TwoLayer,)}
"""Every study by the name that the command line knows."""
