"""Files that are damaged or made to harm are refused with a message, within a bound of memory and time.

Everyday a few mutations are read, and in the deep profile many (UNDERSTUDY_FUZZ sets how many of each kind).
"""

import itertools
import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch import nn

from support.commands import ENVIRONMENT
from support.hostile_files import HOSTILE
from support.mutation import damage
from understudy import nets
from understudy.nets import Layer, Population

CASES = int(os.environ.get("UNDERSTUDY_FUZZ", 1000 if os.environ.get("UNDERSTUDY_PROFILE") == "deep" else 10))
_MOST_MIB, _MOST_SECONDS = 800, 20
_CHECKED = (".zip.pt", ".npz", ".png")
"""Kinds of files that carry checksums, so that other contents are refused."""


class Reader:
    """A process that reads files with little memory: see limited.py."""

    def __init__(self) -> None:
        script = str(Path(__file__).parents[1] / "support" / "limited.py")
        paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
        self.server = subprocess.Popen(
            [sys.executable, script],
            env=ENVIRONMENT | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.server.stdout and self.server.stdout.readline() == "ready\n"

    def read(self, reader: str, path: Path) -> dict:
        """What became of a file; nothing but a result or a refusal is allowed."""
        assert self.server.stdin and self.server.stdout
        text = os.fsencode(path).decode("utf-8", "surrogateescape")
        print(json.dumps([reader, text]), file=self.server.stdin, flush=True)
        found = json.loads(self.server.stdout.readline())
        assert "failed" not in found, (reader, path, found)
        assert found["MiB"] < _MOST_MIB and found["seconds"] < _MOST_SECONDS, (reader, path, found)
        return found


@pytest.fixture(scope="module")
def reader():
    made = Reader()
    yield made
    made.server.communicate()


_RUNS = [name for name, (kind, _) in HOSTILE.items() if kind == "runs"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in HOSTILE if name not in _RUNS])
def test_a_hostile_file_is_refused(reader, name, tmp_path):
    kind, make = HOSTILE[name]
    found = reader.read(kind, make(tmp_path))
    assert "refused" in found, found
    assert not re.search("[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff]", found["refused"]), ascii(found["refused"])
    assert len(found["refused"]) < 10_100


@pytest.mark.parametrize("name", _RUNS)
def test_a_damaged_run_is_passed_over(reader, name, tmp_path):
    _, make = HOSTILE[name]
    assert "read" in reader.read("runs", make(tmp_path))
    (folder,) = tmp_path.glob("*/*")
    assert "refused" in reader.read("run", folder)


def _valid(folder: Path) -> dict[str, tuple[str, Path]]:
    """One valid file of each kind, with its reader."""
    draw = torch.Generator().manual_seed(1)
    layers = tuple(Layer(torch.randn(2, b, a, generator=draw), None) for a, b in ((3, 4), (4, 2)))
    nets.save(Population(layers, torch.arange(2)), folder / "own.safetensors")
    state = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).state_dict()
    torch.save({"epoch": 3, "state_dict": state, "lr": [0.1]}, folder / "net.zip.pt")
    torch.save(state, folder / "net.legacy.pt", _use_new_zipfile_serialization=False)
    safetensors.torch.save_file(state, folder / "other.safetensors")
    x = np.arange(12.0).reshape(4, 3)
    np.save(folder / "x.npy", x)
    np.savez(folder / "x.npz", x=x, y=np.arange(4))
    np.savez_compressed(folder / "small.npz", x=x)
    pq.write_table(pa.table({name: x[:, i] for i, name in enumerate("abc")}), folder / "x.parquet")
    (folder / "x.csv").write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in x), encoding="utf-8")
    Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4)).save(folder / "x.png")
    torch.save({"images": torch.zeros(2, 1, 4, 4)}, folder / "images.zip.pt")
    (folder / "x.txt").write_text("a sentence\nanother one\n", encoding="utf-8")
    kinds = {"own.safetensors": "network", "net.zip.pt": "network", "net.legacy.pt": "network"}
    kinds |= {"other.safetensors": "network", "x.npy": "inputs", "x.npz": "inputs", "small.npz": "inputs"}
    kinds |= {"x.parquet": "inputs", "x.csv": "inputs", "x.png": "images", "images.zip.pt": "images", "x.txt": "text"}
    return {name: (kind, folder / name) for name, kind in kinds.items()}


def test_a_damaged_file_is_refused_or_read(reader, tmp_path):
    """Where a format has checksums, the result is also the same as before."""
    begun, counts = time.monotonic(), dict.fromkeys(("refused", "read", "same"), 0)
    for name, (kind, path) in _valid(tmp_path).items():
        whole = path.read_bytes()
        before = reader.read(kind, path)
        assert "read" in before, before
        for case in range(CASES):
            path.write_bytes(damage(whole, random.Random(f"{name} {case}")))
            found = reader.read(kind, path)
            same = found.get("read") == before["read"]
            counts["same" if same else "read" if "read" in found else "refused"] += 1
            assert same or "refused" in found or not name.endswith(_CHECKED), (name, case, found)
    print(f"{sum(counts.values()):,} damaged files in {time.monotonic() - begun:.0f} s: {counts}")


def test_files_of_another_kind_are_refused(reader, tmp_path):
    """Every file under the name, and for the reader, of every other."""
    files = _valid(tmp_path)
    pairs = list(itertools.permutations(files, 2))[:: 1 if CASES > 10 else 5]
    contents = {name: path.read_bytes() for name, (_, path) in files.items()}
    for one, other in pairs:
        kind, path = files[one]
        path.write_bytes(contents[other])
        reader.read(kind, path)
        path.write_bytes(contents[one])
