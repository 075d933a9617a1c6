"""Where inputs come from: sources that are pure functions of a seed, and data made with a teacher's knowledge."""

from understudy.data.augmentation import TeacherAware as TeacherAware
from understudy.data.augmentation import agnostic as agnostic
from understudy.data.augmentation import aware as aware
from understudy.data.augmentation import teacher_aware as teacher_aware
from understudy.data.cifar import Cifar10 as Cifar10
from understudy.data.mnist import Mnist as Mnist
from understudy.data.sources import File as File
from understudy.data.sources import Fixed as Fixed
from understudy.data.sources import Gaussian as Gaussian
from understudy.data.sources import Labelled as Labelled
from understudy.data.sources import Source as Source
from understudy.data.sources import Uniform as Uniform
