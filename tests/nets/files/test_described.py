"""Weights with a description: what is written is read, several kinds are told apart, and other files are rejected."""

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from understudy import UserError
from understudy.nets.files.described import DescribedFile, find_kind

ONE = DescribedFile("one-thing", 2, "a net with one thing", "net", "save_one")
OTHER = DescribedFile("other-thing", 1, "a model with another", "model", "save_other")
DESCRIPTION = {"sizes": [1, 2], "name": "ünder", "none": None}


@pytest.fixture
def file(tmp_path):
    ONE.write(tmp_path / "a.safetensors", net(), DESCRIPTION)
    return tmp_path / "a.safetensors"


def net(dtype=torch.float32, sizes=(2, 3)):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(*sizes), nn.BatchNorm1d(3)).to(dtype)


def refusal(call, *parts):
    with pytest.raises(UserError) as error:
        call()
    for part in parts:
        assert part in str(error.value), str(error.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_what_is_written_is_read(tmp_path, dtype):
    file, given = tmp_path / "a.safetensors", net(dtype)
    ONE.write(file, given, DESCRIPTION)
    assert ONE.read(file) == {"version": 2, **DESCRIPTION}
    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    ONE.fill(file, empty)
    for name, tensor in given.state_dict().items():
        found = empty.state_dict()[name]
        assert found.dtype == tensor.dtype and torch.equal(found, tensor)
    ONE.write(tmp_path / "b.safetensors", empty, DESCRIPTION)
    assert file.read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.safetensors", "b.safetensors"]


def test_memory_that_is_shared_or_not_contiguous(tmp_path):
    tied = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    tied[1].weight = tied[0].weight
    tied[0].bias = nn.Parameter(torch.randn(4)[::2])
    images = nn.Conv2d(2, 2, 3).to(memory_format=torch.channels_last)
    for module in (tied, images):
        ONE.write(tmp_path / "a.safetensors", module, {})
        found = load_file(tmp_path / "a.safetensors")
        assert all(torch.equal(found[name], tensor) for name, tensor in module.state_dict().items())


def test_a_kind_is_found(file, tmp_path):
    OTHER.write(tmp_path / "b.safetensors", net(), {})
    for kinds in ([ONE, OTHER], [OTHER, ONE]):
        assert find_kind(file, kinds) is ONE and find_kind(str(tmp_path / "b.safetensors"), kinds) is OTHER


def test_other_files_are_rejected(file, tmp_path):
    refusal(
        lambda: OTHER.read(file), "the file does not record a model with another; a file that save_other wrote is n"
    )
    save_file({"x": torch.zeros(2)}, tmp_path / "x.safetensors")
    both = "a file that save_one or save_other wrote is needed"
    message = f"the file does not record a net with one thing or a model with another; {both}"
    refusal(lambda: find_kind(tmp_path / "x.safetensors", [ONE, OTHER]), message)
    refusal(lambda: find_kind(tmp_path / "absent", [ONE, OTHER]), f"absent: there is no such file; {both}")
    refusal(lambda: find_kind(tmp_path, [ONE, OTHER]), f"this is a directory; {both}")
    os.mkfifo(tmp_path / "pipe")
    refusal(lambda: find_kind(tmp_path / "pipe", [ONE, OTHER]), f"this is not a regular file; {both}")
    for data in (b"x", b"\x80\4K\3.", b"PK\3\4" + bytes(99)):
        (tmp_path / "x").write_bytes(data)
        refusal(lambda: find_kind(tmp_path / "x", [ONE, OTHER]), f"this is not a safetensors file; {both}")


def test_every_truncated_file_is_rejected(file):
    data = file.read_bytes()
    for keep in (*range(1, 40), *range(40, len(data), 7), len(data) - 1):
        file.write_bytes(data[:keep])
        refusal(lambda: ONE.read(file), "truncated or damaged" if keep >= 9 else "this is not a safetensors file")


def test_other_versions_and_damaged_metadata(file):
    tensors = load_file(file)
    for text in ("{", "3", "[]", "null", "{}", "[" * 100_000):
        save_file(tensors, file, {"one-thing": text})
        refusal(lambda: ONE.read(file), "its metadata are damaged; save the net again with save_one")
    for version in (1, 3, None, "2"):
        save_file(tensors, file, {"one-thing": json.dumps({"version": version})})
        refusal(
            lambda: ONE.read(file),
            f"the file has format version {version}, but this understudy reads version 2; upgrade understudy, or save "
            "the net again with save_one",
        )


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (net(sizes=(4, 3)), "(0.weight has shape [3, 2] instead of [3, 4]); save the net again with save_one"),
        (nn.Sequential(nn.Linear(2, 3)), "is unexpected and 4 more)"),
        (nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)), "(2.weight is missing and 1 more)"),
        (nn.Linear(2, 3), "(weight is missing and 8 more)"),
    ],
)
def test_weights_that_do_not_match(file, module, message):
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    refusal(lambda: ONE.fill(file, module), "its weights do not match its architecture", message)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_types_that_do_not_match(file):
    tensors = load_file(file)
    for wrong, message in (
        ({"0.bias": torch.zeros(3, dtype=torch.int32)}, "0.bias has values of type torch.int32"),
        ({"1.num_batches_tracked": torch.tensor(1.0)}, "1.num_batches_tracked has values of type torch.float32"),
        (
            {"0.bias": torch.zeros(3).double()},
            "floating-point values have different types, torch.float32, torch.float64",
        ),
        (
            {"0.bias": torch.tensor([0, torch.nan, 0])},
            "0.bias has values that are NaN or infinite, so training diverged",
        ),
        ({"0.bias": torch.tensor([0, -torch.inf, 0])}, "0.bias has values that are NaN or infinite"),
    ):
        save_file(tensors | wrong, file)
        refusal(lambda: ONE.fill(file, net()), str(file), message)


def test_a_description_must_be_json(tmp_path):
    for description in ({"x": float("nan")}, {"x": torch.zeros(1)}):
        with pytest.raises((TypeError, ValueError)):
            ONE.write(tmp_path / "a.safetensors", net(), description)
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written(tmp_path):
    refusal(lambda: ONE.write(tmp_path / "absent" / "a", net(), {}), "cannot be written", "choose another place")
    refusal(lambda: ONE.write(tmp_path, net(), {}), "cannot be written", "choose another place")
