"""`understudy check`: the memory that the command takes."""

import subprocess
import sys

import pytest

import understudy as us
from support.commands import COMMAND, ENVIRONMENT
from support.pairs import random_network


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="needs the memory of processes, and glibc")
@pytest.mark.parametrize("sizes", [((100, 20, 50), (100, 200, 50)), ((100, 20, 20, 20, 50), (100, 100, 100, 100, 50))])
def test_a_check_on_100_000_samples_takes_less_than_1_gb(sizes, tmp_path):
    for role, widths in zip(("teacher", "student"), sizes, strict=True):
        us.save(random_network(len(role), *widths), tmp_path / f"{role}.safetensors")
    words = ["check", "teacher.safetensors", "student.safetensors", "--samples", "100000", "--json"]
    measured = (
        "import resource, subprocess, sys; status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode;"
        "print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", measured, *COMMAND, *words],
        cwd=tmp_path,
        env={name: value for name, value in ENVIRONMENT.items() if name != "UNDERSTUDY_PROFILE"},
        capture_output=True,
        text=True,
        check=True,
    )
    status, kilobytes = map(int, done.stdout.split())
    assert status == 0 and kilobytes * 1024 < 1e9, done.stdout
