"""Networks with several exits: a classifier at each of several depths (Huang et al. 2018; Phuong 2021, ch. 6)."""

from understudy.nets.multi_exit.exits import MultiExit as MultiExit
from understudy.nets.multi_exit.files import SavedExits as SavedExits
from understudy.nets.multi_exit.files import load_exits as load_exits
from understudy.nets.multi_exit.files import save_exits as save_exits
from understudy.nets.multi_exit.grid import Grid as Grid
from understudy.nets.multi_exit.msdnet import MSDNet as MSDNet
