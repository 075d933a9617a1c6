"""What a study is; running, resuming and reporting one; discovering studies."""

from understudy.lab.discovery import load_file as load_file
from understudy.lab.discovery import studies as studies
from understudy.lab.study import ComputedStudy as ComputedStudy
from understudy.lab.study import ExactStudy as ExactStudy
from understudy.lab.study import Experiment as Experiment
from understudy.lab.study import Piece as Piece
from understudy.lab.study import Study as Study
from understudy.lab.study import TrainingStudy as TrainingStudy
