"""Where inputs come from: sources that are pure functions of a seed, and data made with a teacher's knowledge."""

from understudy.data.augmentation import TeacherAware as TeacherAware
from understudy.data.augmentation import agnostic as agnostic
from understudy.data.augmentation import aware as aware
from understudy.data.augmentation import teacher_aware as teacher_aware
from understudy.data.images.cifar10 import Cifar10 as Cifar10
from understudy.data.images.mnist import Mnist as Mnist
from understudy.data.synthetic import File as File
from understudy.data.synthetic import Fixed as Fixed
from understudy.data.synthetic import Gaussian as Gaussian
from understudy.data.synthetic import Labelled as Labelled
from understudy.data.synthetic import Source as Source
from understudy.data.synthetic import Uniform as Uniform
