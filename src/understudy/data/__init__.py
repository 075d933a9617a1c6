"""Sources of inputs: synthetic, from files and tensors of the user, image sets, and sets built around a teacher."""

from understudy.data.arrays import File as File
from understudy.data.arrays import Fixed as Fixed
from understudy.data.augmentation import Augmented as Augmented
from understudy.data.augmentation import TeacherAware as TeacherAware
from understudy.data.augmentation import agnostic as agnostic
from understudy.data.augmentation import aware as aware
from understudy.data.augmentation import teacher_aware as teacher_aware
from understudy.data.derived import RandomLabels as RandomLabels
from understudy.data.derived import TeacherLabels as TeacherLabels
from understudy.data.description import describe as describe
from understudy.data.description import restore as restore
from understudy.data.images.cifar10 import Cifar10 as Cifar10
from understudy.data.images.cifar100 import Cifar100 as Cifar100
from understudy.data.images.class_folders import ClassFolders as ClassFolders
from understudy.data.images.mnist import Mnist as Mnist
from understudy.data.source import Labelled as Labelled
from understudy.data.source import Source as Source
from understudy.data.synthetic import Gaussian as Gaussian
from understudy.data.synthetic import Uniform as Uniform
from understudy.data.text.sentences import Sentences as Sentences
from understudy.data.text.tokens import tokenise as tokenise
from understudy.data.text.vocabulary import Vocabulary as Vocabulary
