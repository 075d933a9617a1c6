"""The study `multi-exit`: early exits that learn from later ones, on CIFAR-100 (Phuong 2021, ch. 6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, Self, get_args

from annotated_types import Ge, Gt, Le

from understudy._errors import UserError
from understudy.lab.options import Among, Count, Distinct, NonNegative, Positive, Share, Sizes, Steps, Unsized
from understudy.lab.pieces import blocks
from understudy.lab.study import ComputedStudy, Dtype, LongPiece, Piece, PiecesPlan
from understudy.papers.multi_exit.published import DISTILLATION, EXIT_WISE, SEMI_SUPERVISED

if TYPE_CHECKING:
    from understudy.data import Cifar100
    from understudy.nets.multi_exit.grid import Grid
    from understudy.papers.multi_exit.shapes import Shapes
    from understudy.store import Run
    from understudy.store.tables import Table
    from understudy.training.multi_exit.objectives import ExitObjective
    from understudy.training.multi_exit.plan import ExitPlan

Loss = Literal["exit-wise", "distillation", "semi-supervised"]
Teachers = Literal["last", "later"]
ANNEALED = "annealed"
SELECTION = 50
"""Images of each class for model selection (Phuong 2021, sec. 6.3.1)."""
MADE_CLASSES = 20
"""Classes of made images."""


class ExitSetting(NamedTuple):
    """What distinguishes networks besides their seed and their images.

    Attributes:
        loss: Exit-wise, distillation or semi-supervised.
        temperature: `annealed`, or a constant as it was given; empty without distillation.
        teachers: Exits from which others learn, `last` or `later`; empty without distillation.
    """

    loss: str
    temperature: str = ""
    teachers: str = ""

    @property
    def label(self) -> str:
        """The setting in words, of which the paper's defaults are not named."""
        temperature = f", T = {float(self.temperature):g}" if self.temperature not in ("", ANNEALED) else ""
        return self.loss + temperature + (", all later teachers" if self.teachers == "later" else "")


class ExitMember(NamedTuple):
    """A network of the study."""

    images: int
    setting: ExitSetting
    seed: int


@dataclass(frozen=True)
class MultiExitStudy(ComputedStudy):
    """How accurate the exits of a multi-scale DenseNet are, trained with and without distillation from later exits.

    Networks learn CIFAR-100 from few labelled images of each class, 50 of which select the model. Losses are compared
    at every exit, with a known time budget and at any time; further temperatures and choices of teachers are compared
    for distillation. All networks of a piece are trained side by side.

    Small runs need no files: they learn made images of 20 classes, forms filled with patterns, which decide no claim.
    """

    name: ClassVar[str] = "multi-exit"
    summary: ClassVar[str] = "how much more accurate early exits become when they learn from later ones, on CIFAR-100"
    figures: ClassVar[str] = "S3 figs. 6.3, 6.5, 6.6, 6.7, E.1, tables 6.2, 6.4, E.1, E.2"
    decides: ClassVar[str] = "X1 X2 X3"
    gains_from_gpu: ClassVar[bool] = True
    table_title: ClassVar[str] = "Accuracies"
    table_lead: ClassVar[str] = (
        "Test accuracies in %, averaged over seeds, with 1.96 standard errors, and where the thesis has it, its top-5 "
        "accuracy. "
        "Budget: the best of the first exits by validation accuracy; anytime: the ensemble of the first exits."
    )

    seeds: Count = 2
    """Number of seeds: each is a subset of the images, the initial weights, and the order and crops of the images."""
    first_seed: Steps = 1
    """The first seed. Settings are chosen on seeds from 101 on, and claims decided on seeds from 1 on."""
    dtype: Dtype = "float32"
    """Precision of weights and updates; float32 only. The fused engine stores features in fewer bits."""
    data: str = ""
    """Folder with the files of CIFAR-100, or with the folder of its archive; by default $UNDERSTUDY_DATA or else
    ~/.cache/understudy."""
    made: Annotated[int, Ge(0), Le(500)] = 0
    """Images of each of 20 classes, made of forms and patterns, that are used where --data is not given, besides those
    for testing; 0 to use CIFAR-100."""
    images: Annotated[tuple[int, ...], Gt(SELECTION), Le(500), Distinct()] = (150,)
    """Labelled images of each class, the 50 for model selection included; the paper has 150, 250, 350 and 500."""
    losses: Annotated[tuple[Loss, ...], Among(get_args(Loss)), Distinct()] = get_args(Loss)
    """Losses: exit-wise (cross-entropy at every exit), distillation (and learning from later exits), semi-supervised
    (distillation also on the unlabelled images)."""
    temperatures: Annotated[tuple[str, ...], Distinct()] = (ANNEALED,)
    """Temperatures of distillation: annealed, or constants such as 1 2 4. The first is used throughout; networks with
    the loss distillation are also trained with each of the others."""
    teachers: Annotated[tuple[Teachers, ...], Among(get_args(Teachers)), Distinct()] = ("last",)
    """Exits from which others learn: the last one, or all later ones. The first is used throughout; networks with the
    loss distillation are also trained with the other."""
    confidence: Share = 0.5
    """Mean confidence of the teachers above which an annealed temperature increases."""
    factor: Annotated[float, Gt(1)] = 1.05
    """Factor by which it increases after each such batch."""
    epochs: Count = 300
    """Number of epochs."""
    drops: Annotated[tuple[int, ...], Ge(1), Distinct(), Unsized()] = (150, 225)
    """Epochs after which the learning rate is divided by 10; later ones than the last epoch have no effect."""
    rate: Positive = 0.5
    """Initial learning rate of SGD with Nesterov momentum 0.9, on the mean of the losses of all exits."""
    decay: NonNegative = 1e-4
    """Weight decay."""
    batch: Annotated[int, Ge(2)] = 64
    """Labelled images per step; a semi-supervised step has as many others again."""
    probe_every: Steps = 10
    """Epochs from one measurement of accuracies and channels to the next; the first and the last epoch are measured
    too. Weights are those of the measurement with the best validation accuracy."""
    test: Annotated[int, Ge(1), Le(10_000)] = 10_000
    """Number of test images."""
    channels: Sizes = (6, 12, 24)
    """Features that a layer of the network adds to each scale, the finest first."""
    layers: Count = 24
    """Layers of the network after the initial one."""
    exits: Sizes = tuple(range(4, 25, 2))
    """Layers after which the network has exits."""
    head: Count = 128
    """Channels of the two convolutions of an exit."""
    stem: Literal["plain", "imagenet"] = "plain"
    """First layer: a 3×3 convolution, or a 7×7 convolution and pooling, which reduce the image to a quarter."""
    engine: Literal["auto", "plain", "fused"] = "auto"
    """How steps are computed: plain (the reference, network by network), fused (kernels for a GPU), or auto."""
    together: Steps = 16
    """Most networks that are trained side by side; a run that is copied without the state of its training goes on after
    the last such group."""
    repeats: Steps = 100
    """Runs by which the time of each exit is measured."""
    imagenet_repeats: Annotated[int, Ge(0), Unsized()] = 20
    """The same for the network for ImageNet (Phuong 2021, table E.2); 0 to leave it out."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=3,
            made=250,
            images=(55,),
            epochs=120,
            drops=(60, 90),
            rate=0.2,
            batch=50,
            probe_every=30,
            test=1_000,
            channels=(8, 16),
            layers=4,
            exits=(1, 2, 4),
            head=32,
            stem="imagenet",
            repeats=10,
            imagenet_repeats=0,
        )

    def validate(self) -> None:
        if self.dtype != "float32":
            raise UserError(f"--dtype must be float32, got {self.dtype}: {self.name} trains in float32 only")
        for given in self.temperatures:
            _require_temperature(given)
        if len({_constant(given) for given in self.temperatures}) < len(self.temperatures):
            raise UserError(f"--temperatures takes each value once, got {' '.join(self.temperatures)}")
        if list(self.drops) != sorted(self.drops):
            raise UserError(f"--drops must be in increasing order, got {' '.join(map(str, self.drops))}")
        for option, several in (("temperatures", self.temperatures), ("teachers", self.teachers)):
            if len(several) > 1 and DISTILLATION not in self.losses:
                raise UserError(
                    f"--{option} takes one value unless --losses has distillation, which is compared at each, got "
                    f"{' '.join(several)}"
                )
        most = self.per_class
        if max(self.images) > most:
            raise UserError(
                f"--images must be at most the made images of a class (--made {most}), got {max(self.images)}"
            )
        if not any(map(self.settings, self.images)):
            raise UserError(
                f"--losses semi-supervised needs --images below {most}: with {most}, no image is unlabelled"
            )
        fewest = self.classes * (min(self.images) - SELECTION)
        if self.batch > fewest:
            raise UserError(f"--batch must be at most the number of training images ({fewest:,}), got {self.batch:,}")
        self.grid  # noqa: B018, raises an error for an architecture that does not exist

    def warnings(self) -> tuple[str, ...]:
        if SEMI_SUPERVISED in self.losses and self.per_class in self.images:
            return (
                f"with --images {self.per_class} no image is unlabelled, so nothing is trained semi-supervised there",
            )
        return ()

    @property
    def on_made(self) -> bool:
        """Whether the images are made, and not those of CIFAR-100."""
        return self.made > 0 and not self.data

    @property
    def classes(self) -> int:
        """Number of classes."""
        return MADE_CLASSES if self.on_made else 100

    @property
    def per_class(self) -> int:
        """Images of each class that are not for testing."""
        return self.made if self.on_made else 500

    @property
    def top(self) -> int:
        """k of the top-k accuracies that are shown: 5 as in the thesis, and 1 for the fewer classes of made images."""
        return 1 if self.on_made else 5

    @property
    def seed_names(self) -> range:
        """The seeds, from the first on."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @cached_property
    def grid(self) -> Grid:
        """The architecture."""
        from understudy.nets.multi_exit.grid import Grid

        try:
            return Grid(
                classes=self.classes,
                channels=self.channels,
                layers=self.layers,
                exits=self.exits,
                head=self.head,
                stem=self.stem,
            )
        except UserError as error:
            raise UserError(f"--{error}") from None

    @property
    def architecture_of_the_paper(self) -> bool:
        """Whether the networks have the architecture of the thesis, so that its numbers are shown."""
        from understudy.nets.multi_exit.grid import Grid

        return self.grid == Grid()

    def settings(self, images: int) -> tuple[ExitSetting, ...]:
        """Settings that are trained with a number of images, those of the paper's tables first.

        Args:
            images: Labelled images of each class.
        """
        temperature, teachers = self.temperatures[0], self.teachers[0]
        found = [
            ExitSetting(loss) if loss == EXIT_WISE else ExitSetting(loss, temperature, teachers)
            for loss in self.losses
            if not (loss == SEMI_SUPERVISED and images == self.per_class)
        ]
        if DISTILLATION in self.losses:
            found += [ExitSetting(DISTILLATION, other, teachers) for other in self.temperatures[1:]]
            found += [ExitSetting(DISTILLATION, temperature, other) for other in self.teachers[1:]]
        return tuple(found)

    def members(self) -> tuple[tuple[ExitMember, ...], ...]:
        """Networks in the groups that are trained side by side: of one number of images and one form of batches."""
        groups = []
        for images in self.images:
            for unlabelled in (False, True):
                same = [
                    ExitMember(images, setting, seed)
                    for seed in self.seed_names
                    for setting in self.settings(images)
                    if (setting.loss == SEMI_SUPERVISED) == unlabelled
                ]
                groups += [tuple(same[i] for i in block) for block in blocks(range(len(same)), self.together)]
        return tuple(groups)

    def images_name(self, images: int) -> str:
        """The data in words, as titles of figures have it.

        Args:
            images: Labelled images of each class.
        """
        return f"{images} made images per class" if self.on_made else f"CIFAR({images})"

    def file(self, member: ExitMember) -> str:
        """Name of the file with the weights of a network.

        Args:
            member: The network.
        """
        words = member.setting.label.replace(", T = ", "-t").replace(", all ", "-").replace(" ", "-")
        data = "made" if self.on_made else "cifar"
        return f"{data}{member.images}-{words}-seed{member.seed}.safetensors"

    def steps(self, images: int) -> int:
        """Steps of an epoch.

        Args:
            images: Labelled images of each class.
        """
        return self.classes * (images - SELECTION) // self.batch

    def exit_plan(self, members: tuple[ExitMember, ...]) -> ExitPlan:
        """What to train for a group of networks.

        Args:
            members: Networks with the same number of images.
        """
        from understudy.training.multi_exit.plan import ExitNetwork, ExitPlan

        networks = [
            ExitNetwork(each.seed, self._objective(each.setting), self.rate, each.setting.loss == SEMI_SUPERVISED)
            for each in members
        ]
        return ExitPlan(
            tuple(networks),
            grid=self.grid,
            per_class=members[0].images,
            selection=SELECTION,
            epochs=self.epochs,
            batch=self.batch,
            drops=tuple(epoch for epoch in self.drops if epoch < self.epochs),
            probes=tuple(range(0, self.epochs, self.probe_every)),
            decay=self.decay,
        )

    @property
    def chosen_engine(self) -> Literal["auto", "plain", "fused"]:
        """The engine, which for a network with the stem for ImageNet is the plain one unless another was asked for."""
        return "plain" if self.engine == "auto" and self.stem != "plain" else self.engine

    def require_data(self) -> None:
        self.source()

    def source(self) -> Cifar100 | Shapes:
        """The images.

        Raises:
            UserError: If the files are missing or incomplete.
        """
        from understudy.data import Cifar100
        from understudy.papers.multi_exit.shapes import Shapes

        if self.on_made:
            return Shapes(self.made, self.test)
        try:
            return Cifar100(self.data or None)
        except UserError as error:
            words = str(error).rstrip(".")
            raise UserError(f"--data: {words}; or use --made 250, which needs no files") from None

    def pieces(self, *runs: Run) -> Iterator[Piece | LongPiece]:
        from understudy.papers.multi_exit.multi_exit.training import network_bytes, time_networks, train_group

        self.source()  # raises an error before anything is written
        for number, members in enumerate(self.members(), 1):
            name = f"group {number}, {members[0].images} images per class"
            space = len(members) * network_bytes(self.grid)
            yield LongPiece(name, len(members), partial(train_group, self, name, members), space)
        yield Piece("time of each exit", 0, partial(time_networks, self))

    def table(self, run: Run) -> Table:
        from understudy.papers.multi_exit.multi_exit.results import accuracy_table

        return accuracy_table(self, run)

    def planned(self) -> PiecesPlan:
        from understudy.papers.multi_exit.multi_exit.training import plan_groups

        return plan_groups(self)

    def _objective(self, setting: ExitSetting) -> ExitObjective:
        from understudy.training.multi_exit.objectives import ExitObjective

        exits = len(self.exits)
        if setting.loss == EXIT_WISE:
            return ExitObjective.exit_wise(exits)
        make = ExitObjective.last_teacher if setting.teachers == "last" else ExitObjective.later_teachers
        if setting.temperature == ANNEALED:
            return make(exits, limit=self.confidence, factor=self.factor)
        return make(exits, temperature=float(setting.temperature), limit=None)


def _require_temperature(given: str) -> None:
    if given != ANNEALED and not _constant(given) > 0:
        raise UserError(f"--temperatures must be annealed or numbers above 0, got {given!r}")


def _constant(given: str) -> float:
    """A constant temperature; 0 for one that is not a finite number, and −1 for an annealed one."""
    if given == ANNEALED:
        return -1.0
    try:
        value = float(given)
    except ValueError:
        return 0.0
    return value if 0 < value < float("inf") else 0.0
