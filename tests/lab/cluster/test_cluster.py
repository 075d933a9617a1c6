"""A real Ray cluster of two nodes on this machine: the bytes of one machine, lost workers and nodes, and errors."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch

# All nodes on this machine: Ray then names it by the loopback address instead of one that others can reach.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
pytest.importorskip("ray")

import understudy as us
from support.commands import understudy
from understudy._errors import UserError
from understudy.lab.cluster import engine
from understudy.lab.cluster.pieces import compute_pieces
from understudy.lab.study import LongCompute

DIFFERENT = {"environment.json", "report.html"}
"""Files that say how long a run took."""
HERE = "127.0.0.1"
SMALL = {"quick": True, "seeds": 2, "epochs": 4, "steps": 50, "train": 200, "evaluation": 200, "polarity": 1.0}
WORDS = ["--quick", "--seeds", "2", "--steps", "50", "--train", "200", "--evaluation", "200", "--polarity", "1"]


@pytest.fixture(scope="module")
def nodes():
    """A cluster of two nodes with a core each, which talk over the loopback interface only."""
    from ray.cluster_utils import Cluster

    fast = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}
    head = {"num_cpus": 1, "node_ip_address": HERE, "include_dashboard": False, "_system_config": fast}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1, node_ip_address=HERE)
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def address(nodes):
    return f"ray:{nodes.address}"


def same_files(one: Path, other: Path) -> None:
    files = {path.relative_to(one) for path in one.rglob("*") if path.is_file()}
    assert files == {path.relative_to(other) for path in other.rglob("*") if path.is_file()}
    for path in files:
        assert path.name in DIFFERENT or (one / path).read_bytes() == (other / path).read_bytes(), path


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of students of two widths, made by this process."""
    return us.run("two-layer", out=tmp_path_factory.mktemp("alone"), progress=False, **SMALL).folder


class TestRuns:
    def test_a_training_has_the_bytes_of_one_machine(self, address, alone, tmp_path):
        run = us.run("two-layer", out=tmp_path, progress=False, cluster=address, **SMALL)
        same_files(alone, run.folder)

    def test_a_computation_has_the_bytes_of_one_machine(self, address, tmp_path):
        options = {"seeds": 20, "dim": 10, "inputs": 3, "kappa": (0.5, 1.0)}
        runs = [
            us.run("data-geometry", out=tmp_path / str(i), progress=False, cluster=cluster, **options)
            for i, cluster in enumerate(["", address])
        ]
        same_files(*(run.folder for run in runs))

    def test_a_node_that_is_lost_costs_time_only(self, nodes, address, alone, tmp_path):
        third = nodes.add_node(num_cpus=1, node_ip_address=HERE)
        seen = threading.Event()

        def remove():
            seen.wait(60)
            nodes.remove_node(third, allow_graceful=False)

        thread = threading.Thread(target=remove)
        thread.start()
        original = engine.Cluster.submit

        def submit(cluster, key, work, *values):
            original(cluster, key, work, *values)
            if "epochs 1 to" in key:
                seen.set()

        engine.Cluster.submit = submit
        try:
            run = us.run("two-layer", out=tmp_path, progress=False, cluster=address, **SMALL)
        finally:
            engine.Cluster.submit = original
            seen.set()
            thread.join()
        same_files(alone, run.folder)

    @pytest.mark.deep
    def test_a_study_in_the_users_file_runs_on_workers(self, address, tmp_path):
        words = ["--quick", "--seeds", "1", "--epochs", "2", "--steps", "20"]
        example = Path(__file__).parents[3] / "examples" / "06_your_own_study.py"
        own = tmp_path / "own_study.py"
        own.write_text(example.read_text())
        understudy("run", own, *words, "--out", "here", cwd=tmp_path)
        understudy("run", own, *words, "--out", "there", "--cluster", address, cwd=tmp_path)
        same_files(*(next((tmp_path / out).glob("*/*")) for out in ("here", "there")))

    @pytest.mark.deep
    def test_a_driver_that_is_killed_resumes(self, address, tmp_path):
        words = [*WORDS, "--epochs", "8", "--out", str(tmp_path), "--cluster", address]
        command = [sys.executable, "-m", "understudy.cli", "run", "two-layer", *words]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while not list(tmp_path.glob("*/*/progress/state*")):
                time.sleep(0.02)
                assert process.poll() is None
            process.send_signal(signal.SIGKILL)
        assert not list(tmp_path.glob("*/*/report.html"))
        subprocess.run(command, check=True, capture_output=True)
        run = us.run("two-layer", out=tmp_path / "here", progress=False, **SMALL | {"epochs": 8})
        same_files(run.folder, next(tmp_path.glob("two-layer/*")))


class TestPieces:
    @pytest.mark.deep
    def test_a_piece_that_ends_its_worker_is_given_up_and_the_rest_goes_on(self, address, tmp_path):
        found = {}
        pieces = {"lost": lambda: os._exit(1), "sound": lambda: {"networks": 1}}
        with (
            engine.connect(address, gpu=False) as cluster,
            pytest.raises(engine.LostError, match="lost: its worker was lost 3 times"),
        ):
            for name, tables in compute_pieces(cluster, pieces, tmp_path):
                found[name] = tables
        assert found == {"sound": {"networks": 1}}

    def test_an_error_of_a_piece_is_its_own(self, address, tmp_path):
        def refuse():
            raise UserError("must be smaller", "samples")

        with engine.connect(address, gpu=False) as cluster, pytest.raises(UserError, match="must be smaller"):
            list(compute_pieces(cluster, {"one": refuse}, tmp_path))

    @pytest.mark.deep
    def test_a_long_piece_returns_the_files_that_it_keeps(self, address, tmp_path):
        def work(place):
            place.say("working")
            (place.state / "half").write_text("not kept")
            (place.run / "models").mkdir()
            (place.run / "models" / "a.txt").write_text("kept")
            return {"networks": 1}

        with engine.connect(address, gpu=False) as cluster:
            assert dict(compute_pieces(cluster, {"long": LongCompute(work, 0)}, tmp_path)) == {"long": {"networks": 1}}
        assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.txt"]

    def test_tasks_have_one_core(self, address, tmp_path):
        def count():
            from understudy._cores import cores

            return {"networks": cores(), "metrics": torch.get_num_threads()}

        with engine.connect(address, gpu=False) as cluster:
            assert cluster.slots == 2
            assert dict(compute_pieces(cluster, {"one": count}, tmp_path))["one"] == {"networks": 1, "metrics": 1}

    def test_tasks_have_the_folder_and_the_data_of_the_command(self, address, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("UNDERSTUDY_DATA", "images")

        def where():
            from understudy.data.images.base import data_folder

            return {"networks": str(data_folder(None).absolute()), "metrics": int(os.environ["UNDERSTUDY_MEMORY"])}

        with engine.connect(address, gpu=False) as cluster:
            found = dict(compute_pieces(cluster, {"one": where}, tmp_path))["one"]
        assert found["networks"] == str(tmp_path / "images")
        assert 0 < found["metrics"] <= psutil.virtual_memory().total


class TestErrors:
    def test_another_version_is_refused_by_name(self, address, monkeypatch):
        real = engine.version
        monkeypatch.setattr(engine, "version", lambda name: "9.9.9" if name == "torch" else real(name))
        with (
            pytest.raises(UserError, match=rf"node {HERE} has torch .* instead of 9.9.9.*install the same version"),
            engine.connect(address, gpu=False),
        ):
            pass

    def test_other_source_files_are_refused(self, address, monkeypatch):
        monkeypatch.setattr(engine, "_digest", lambda package: "0")
        with (
            pytest.raises(UserError, match=rf"node {HERE} has source files of understudy \w+ instead of 0"),
            engine.connect(address, gpu=False),
        ):
            pass

    def test_no_gpu_for_a_piece_that_needs_one(self, address):
        with pytest.raises(UserError, match="a piece needs a GPU and a core"), engine.connect(address, gpu=True):
            pass

    @pytest.mark.parametrize(
        ("words", "error"),
        [
            (["--cluster", "dask"], "--cluster must be ray or ray:ADDRESS, got dask"),
            (["--cluster", "ray:"], "--cluster must be ray or ray:ADDRESS, got ray:"),
            (["--cluster", "ray:127.0.0.1:1"], "there is no Ray cluster at 127.0.0.1:1"),
        ],
    )
    def test_no_such_cluster(self, words, error, tmp_path):
        ended = understudy("run", "data-geometry", "--quick", *words, cwd=tmp_path, status=2)
        assert error in ended.stderr
        assert not list(tmp_path.rglob("config.toml"))

    def test_an_address_in_the_environment_at_which_nothing_answers(self, monkeypatch):
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
        with pytest.raises(UserError, match="there is no Ray cluster at 127"), engine.connect("ray", gpu=False):
            pass

    def test_a_cluster_that_has_ended_is_not_looked_for(self, monkeypatch):
        from ray._private import services

        monkeypatch.setattr(services, "find_bootstrap_address", lambda folder: "127.0.0.1:1")
        assert engine._started_here() == ""

    @pytest.mark.deep
    def test_no_node_left_is_an_error(self, address, monkeypatch, tmp_path):
        with engine.connect(address, gpu=False) as cluster:
            monkeypatch.setattr(engine, "_PROBE", 1.0)
            monkeypatch.setattr(engine.Cluster, "slots", 0)
            with pytest.raises(UserError, match=r"no node of the cluster is left .* piece; 1 were not computed"):
                list(compute_pieces(cluster, {"one": lambda: time.sleep(60)}, tmp_path))

    def test_without_ray_the_option_says_how_to_install_it(self, monkeypatch):
        monkeypatch.setattr(engine, "find_spec", lambda name: None)
        with pytest.raises(UserError, match=r"pip install 'understudy\[ray\]'"), engine.connect("ray", gpu=False):
            pass
