"""What a study is; running, resuming and reporting one; discovering studies."""

from understudy.lab.discovery import studies as studies
from understudy.lab.study import Experiment as Experiment
from understudy.lab.study import Study as Study
