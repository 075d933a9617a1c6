"""Files of networks with several exits: what is saved is loaded, and damaged or other files are rejected."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import understudy as us
from understudy.nets.multi_exit.files import SavedExits, load_exits, save_exits
from understudy.nets.multi_exit.grid import Grid

GRID = Grid(3, 8, 1, channels=(2, 2), layers=2, exits=(1, 2), head=3)
KNOWN = {"validation": (0.5, 0.75), "mean": (0.4,), "std": (0.2,), "class_names": ("cat", "dog", "ünder")}


@pytest.fixture
def network():
    torch.manual_seed(0)
    made = us.MSDNet(GRID)
    made(torch.randn(8, 1, 8, 8))  # running statistics that are not trivial
    return made


def module(width: int = 4, side: int = 8) -> us.nets.multi_exit.exits.MultiExit:
    torch.manual_seed(1)
    body = nn.Sequential(
        nn.Conv2d(1, width, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3)
    )
    return us.exits(body, [1], example=(1, side, side))


def changed(file: Path, tensors: dict | None = None, **metadata: object) -> Path:
    """Write the file again with other tensors, or other entries of its metadata."""
    with safetensors.safe_open(file, "pt") as source:
        stated = json.loads(source.metadata()["understudy-exits"])
    save_file(load_file(file) | (tensors or {}), file, {"understudy-exits": json.dumps(stated | metadata)})
    return file


def refusal(file: Path, *parts: str, **given: object) -> None:
    with pytest.raises(us.UserError) as error:
        load_exits(file, **given)
    for part in (str(file), *parts):
        assert part in str(error.value), str(error.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_survives_its_file(network, tmp_path, dtype):
    network.to(dtype)
    save_exits(network, tmp_path / "a.safetensors", **KNOWN)
    saved = load_exits(tmp_path / "a.safetensors")
    assert saved.network.grid == GRID and not saved.network.training
    assert {name: getattr(saved, name) for name in KNOWN} == KNOWN
    x = torch.randn(4, 1, 8, 8, dtype=dtype)
    assert torch.equal(saved.network(x), network.eval()(x))
    save_exits(saved.network, tmp_path / "b.safetensors", **KNOWN)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.safetensors", "b.safetensors"]


def test_unknown_things_are_empty(network, tmp_path):
    save_exits(network, tmp_path / "a.safetensors")
    assert load_exits(tmp_path / "a.safetensors").validation == ()


def test_a_loaded_network_can_be_trained(network, tmp_path):
    save_exits(network, tmp_path / "a.safetensors")
    again = load_exits(tmp_path / "a.safetensors").network.train()
    again(torch.randn(4, 1, 8, 8)).square().sum().backward()
    assert all(p.grad is not None for p in again.parameters())


def test_weights_are_read_without_understudy(network, tmp_path):
    save_exits(network, tmp_path / "a.safetensors")
    assert load_file(tmp_path / "a.safetensors").keys() == network.state_dict().keys()


def test_a_module_of_the_users_survives_its_file(tmp_path):
    ours = module()
    save_exits(ours, tmp_path / "a.safetensors", validation=(0.1, 0.2))
    other = module()
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    saved = load_exits(tmp_path / "a.safetensors", other)
    x = torch.randn(4, 1, 8, 8)
    assert torch.equal(saved.network(x), ours.eval()(x)) and saved.validation == (0.1, 0.2)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"validation": (0.5,)}, r"validation must have one value for each exit \(2\), got 1"),
        ({"validation": (0.5, 75.0)}, "validation must be shares from 0 to 1, got 75.0"),
        ({"validation": (0.5, float("nan"))}, r"validation must be several finite numbers, got \(0\.5, nan\)"),
        ({"mean": (0.5,)}, "std must be given together with mean, or neither of them"),
        ({"mean": (0.5, 0.5), "std": (0.5,)}, r"mean must have one value for each colour \(1\), got 2"),
        ({"mean": (0.5,), "std": (0.0,)}, "std must be above 0 and at most 1, for images divided by 255, got 0"),
        ({"mean": (127.0,), "std": (60.0,)}, "mean must be from 0 to 1, for images divided by 255, got 127"),
        ({"mean": (0.5,), "std": (60.0,)}, "std must be above 0 and at most 1, for images divided by 255, got 60"),
        ({"mean": (float("nan"),), "std": (0.5,)}, r"mean must be several finite numbers, got \(nan,\)"),
        ({"class_names": ("cat",)}, r"class_names must have one value for each class \(3\), got 1"),
    ],
)
def test_bad_values(network, tmp_path, known, message):
    with pytest.raises(us.UserError, match=message):
        save_exits(network, tmp_path / "a.safetensors", **known)
    with pytest.raises(us.UserError, match=message):
        SavedExits(network, **known)
    assert not list(tmp_path.iterdir())


def test_bad_places(network, tmp_path):
    with pytest.raises(us.UserError, match="choose another place"):
        save_exits(network, tmp_path / "absent" / "a.safetensors")


class TestRejected:
    @pytest.fixture
    def file(self, network, tmp_path):
        save_exits(network, tmp_path / "a.safetensors", **KNOWN)
        return tmp_path / "a.safetensors"

    def test_no_file(self, tmp_path):
        refusal(tmp_path / "a.safetensors", "there is no such file; a file that save_exits wrote is needed")

    @pytest.mark.parametrize("keep", [4, 9, 500, -1])
    def test_a_truncated_file(self, file, keep):
        file.write_bytes(file.read_bytes()[:keep])
        refusal(file, "not a safetensors file" if keep == 4 else "truncated or damaged")

    def test_another_file(self, file):
        file.write_bytes(b"PK\3\4 not safetensors")
        refusal(file, "this is not a safetensors file; a file that save_exits wrote is needed")
        save_file({"x": torch.zeros(3)}, file)
        refusal(file, "the file does not record a network with several exits; a file that save_exits wrote is needed")
        us.save(us.teachers.distinct_rows((6, 3, 4), seeds=[1]), file)
        refusal(file, "the file does not record a network with several exits")

    def test_damaged_metadata(self, file):
        tensors = load_file(file)
        for text in ("{", "3", "{}", '{"version": 1}'):
            save_file(tensors, file, {"understudy-exits": text})
            refusal(file, "save the network again")

    @pytest.mark.parametrize(
        ("metadata", "message"),
        [
            ({"version": 2}, "has format version 2, but this understudy reads version 1; upgrade understudy"),
            ({"architecture": "other"}, "records no architecture; save the network again"),
            ({"architecture": {"layers": 0}}, "its architecture cannot be read (layers must be a whole number"),
            ({"architecture": {"depth": 3}}, "its architecture cannot be read ("),
            ({"validation": [0.5, 0.6, 0.7]}, "its metadata are damaged (validation must have one value for each exit"),
            pytest.param(
                {"validation": ["a", "b"]},
                "damaged (validation must be several finite numbers, got ['a', 'b']); save",
                marks=pytest.mark.wrong_shapes,
            ),
            pytest.param(
                {"validation": 3},
                "its metadata are damaged (validation must be several finite numbers, got 3)",
                marks=pytest.mark.wrong_shapes,
            ),
            pytest.param(
                {"class_names": [1, 2, 3]},
                "are damaged (class_names must be a list of names, got [1, 2, 3])",
                marks=pytest.mark.wrong_shapes,
            ),
            ({"exits": ["layer 1"]}, "the saved network has the exits layer 1, but the module has layer 1, layer 2"),
        ],
    )
    def test_other_metadata(self, file, metadata, message):
        refusal(changed(file, **metadata), message)

    def test_weights_that_do_not_match(self, file):
        wrong = {"exits.1.classifier.bias": torch.zeros(4)}
        refusal(changed(file, wrong), "do not match", "exits.1.classifier.bias has shape [4] instead of [3]")
        wrong = {"exits.1.classifier.bias": torch.zeros(3, dtype=torch.int32), "extra": torch.zeros(3)}
        refusal(changed(file, wrong), "extra is unexpected and 1 more")
        tensors = load_file(file)
        del tensors["first.0.norm.running_var"], tensors["extra"]
        with safetensors.safe_open(file, "pt") as source:
            metadata = source.metadata()
        save_file(tensors, file, metadata)
        refusal(file, "first.0.norm.running_var is missing and 1 more")

    def test_weights_that_are_not_finite(self, file):
        refusal(
            changed(file, {"exits.1.classifier.bias": torch.full((3,), torch.nan)}),
            "exits.1.classifier.bias has values that are NaN or infinite, so training diverged or the file is damaged",
        )

    def test_a_module_that_is_missing_or_not_needed(self, file, tmp_path):
        refusal(file, "records its own architecture; omit the module", module=module())
        own = tmp_path / "own.safetensors"
        save_exits(module(), own)
        refusal(own, "whose code is needed: give --model FILE.py:NAME", "load_exits(path, module)")
        refusal(own, "must be what us.exits returns, got a Linear", module=nn.Linear(1, 1))
        refusal(own, "its tensors do not fit MultiExit", module=module(width=5))
        other = us.exits(module().body, ["0"], example=(1, 8, 8), width=3)
        refusal(own, "the saved network has the exits 1, output, but the module has 0, output", module=other)
        refusal(own, "has the image shape 1, 8, 8, but the module has 1, 7, 7", module=module(side=7))

    @pytest.mark.wrong_shapes
    def test_another_kind_of_network(self, tmp_path):
        with pytest.raises(us.UserError, match=r"got a Linear; put exits on a module with us\.exits"):
            save_exits(nn.Linear(1, 1), tmp_path / "a.safetensors")

    @pytest.mark.wrong_shapes
    @pytest.mark.parametrize(
        ("known", "message"),
        [
            ({"mean": 0.5, "std": 0.5}, "mean must be several finite numbers, got 0.5"),
            ({"validation": ["a", "b"]}, r"validation must be several finite numbers, got \['a', 'b'\]"),
            ({"class_names": "abc"}, "class_names must be a list of names, got 'abc'"),
            ({"class_names": range(3)}, r"class_names must be a list of names, got range\(0, 3\)"),
        ],
    )
    def test_other_types(self, network, tmp_path, known, message):
        with pytest.raises(us.UserError, match=message):
            save_exits(network, tmp_path / "a.safetensors", **known)
        assert not list(tmp_path.iterdir())


@pytest.mark.wrong_shapes
@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_numbers_are_taken_from_any_array(network, tmp_path, kind):
    save_exits(network, tmp_path / "a.safetensors", validation=kind([0.5, 0.75]), mean=kind([0.25]), std=kind([0.5]))
    saved = load_exits(tmp_path / "a.safetensors")
    assert (saved.validation, saved.mean, saved.std) == ((0.5, 0.75), (0.25,), (0.5,))
