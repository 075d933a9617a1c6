"""Reproduce papers: every run that their claims need, in processes of their own, and one page about all of them."""

from understudy.lab.reproduce.jobs import Job as Job
from understudy.lab.reproduce.jobs import Missing as Missing
from understudy.lab.reproduce.jobs import plan_jobs as plan_jobs
from understudy.lab.reproduce.live import LiveTable as LiveTable
from understudy.lab.reproduce.processes import run_jobs as run_jobs
from understudy.lab.reproduce.results import Reproduction as Reproduction
from understudy.lab.reproduce.run import Prepared as Prepared
from understudy.lab.reproduce.run import reproduce as reproduce
