"""Two profiles: the everyday one draws the same few cases each time; UNDERSTUDY_PROFILE=deep draws many, and checks
types and shapes of every call (jaxtyping, beartype)."""

import gc
import json
import os
import signal
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:
    # Every core has a worker: threads of torch, in tests and in the commands that they call, would wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

from support.commands import TINY, understudy
from support.images import write_cifar, write_cifar100, write_mnist

DEEP = os.environ.get("UNDERSTUDY_PROFILE") == "deep"
if DEEP:
    import support.shapes  # noqa: F401, the hook refers to it by name

    # Before the first import of a room: the hook applies to modules that are imported after it.
    papers = Path(__file__).parents[1] / "src/understudy/papers"
    theories = (f"papers.{folder.parent.name}.theory" for folder in papers.glob("*/theory"))
    tensors = ("_random", "data", "measures", "nets", "students", "teachers", "theory", "training", *theories)
    install_import_hook([f"understudy.{room}" for room in tensors], "support.shapes.checked")

from understudy.training.parallel import one_thread_each  # noqa: E402

settings.register_profile("quick", max_examples=10, deadline=None, derandomize=True)
settings.register_profile("deep", max_examples=200, deadline=None, print_blob=True)
settings.load_profile("deep" if DEEP else "quick")


def pytest_configure(config):
    if DEEP:
        # beartype looks at random items of long containers, also where hypothesis draws.
        config.addinivalue_line("filterwarnings", "ignore:Do not use the `random` module inside strategies")


def pytest_collection_modifyitems(items):
    reason = pytest.mark.skip(reason="wrong shapes or types on purpose: where they are checked, that check is first")
    for item in items:
        if DEEP and item.get_closest_marker("wrong_shapes"):
            item.add_marker(reason)


def pytest_collection():
    gc.disable()


def pytest_collection_finish():
    """Leave ten thousand collected tests out of garbage collection, which would visit them all, a second each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module")
def one_thread():
    """Torch as it is where the loop calls an engine."""
    with one_thread_each():
        yield


@pytest.fixture
def sigint_enabled():
    """Handle SIGINT during the test: processes started in the background ignore it, and so would their children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def published():
    """Checksums of CIFAR-10's files, which those with images of ours have not."""
    from understudy.data.images import cifar10 as cifar

    sums = dict(cifar.PUBLISHED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cifar, "PUBLISHED", {})
        yield sums


@pytest.fixture(scope="session", autouse=True)
def figures_in_this_process():
    """Draw figures of runs here: every core has a test of its own to run, and a worker takes a second to start.

    Runs of commands in their own process draw as they do for users.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.report.pool._MOST", 0)
        yield


@pytest.fixture(scope="session")
def cifar(tmp_path_factory):
    """A folder with CIFAR-10's files, whose images are ours."""
    return write_cifar(tmp_path_factory.mktemp("cifar"))


@pytest.fixture(scope="session")
def cifar100(tmp_path_factory):
    """A folder with CIFAR-100's files, whose images are ours."""
    return write_cifar100(tmp_path_factory.mktemp("cifar100"))


@pytest.fixture(scope="session")
def mnist(tmp_path_factory):
    """A folder with MNIST's files, whose images are ours."""
    return write_mnist(tmp_path_factory.mktemp("mnist"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A finished run of the smallest two-layer study, by the command: what it printed, and its folder."""
    from understudy.report import style

    here = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.report.pool.files", style.files)  # also where tests lay figures out only
        done = understudy("run", "two-layer", *TINY, "--json", cwd=here)
    return done, here / Path(json.loads(done.stdout)["run"])


@pytest.fixture(scope="session")
def example_printed(tmp_path_factory):
    """What `understudy example mine --json` printed in a folder of its own."""
    here = tmp_path_factory.mktemp("example")
    return understudy("example", here / "mine", "--json", cwd=here).stdout


@pytest.fixture(scope="session")
def example(example_printed):
    """The folder that `understudy example mine` wrote; copy it to write into it."""
    return Path(json.loads(example_printed)["folder"])
