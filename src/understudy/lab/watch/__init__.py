"""`us.watch`: follow a training in any loop, and record which student node learned which teacher node, and when."""

from understudy.lab.watch.watching import Watch as Watch
from understudy.lab.watch.watching import watch as watch
