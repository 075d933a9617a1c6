"""CIFAR-100: reading both published layouts, subsets of labelled images, and errors for damaged or missing files."""

import math
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from support.images import needs
from understudy import teachers
from understudy._errors import UserError
from understudy._random import Stream, words
from understudy.data import Cifar100, Labelled, Source, describe, restore
from understudy.data.images import cifar100, cifar_files
from understudy.data.images.base import copy_pixels, draw_order

MEAN, STD = np.array([0.5071, 0.4865, 0.4409]), np.array([0.2673, 0.2564, 0.2762])
PARENTS = np.arange(100) % 20
"""Coarse class of each fine class in the files made here."""
BLACK, WHITE = 50_000, 50_001
DOWNLOAD = (
    "download https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    "168,513,733 bytes",
    "03b5dce01913d631647c71ecec9e9cb8",
)
needs_data = needs(Cifar100, "CIFAR-100")


@pytest.fixture(scope="module")
def records():
    """As many records (coarse label, fine label, pixels) as published, with random labels and pixels."""
    random = np.random.default_rng(0)
    found = random.integers(0, 256, (60_000, 3074), dtype=np.uint8)
    found[:, 1] = np.concatenate([random.permutation(np.arange(n) % 100) for n in (50_000, 10_000)])
    found[:, 0] = PARENTS[found[:, 1]]
    found[BLACK, 2:], found[WHITE, 2:] = 0, 255
    yield found
    cifar100._read.cache_clear()
    copy_pixels.cache_clear()


@pytest.fixture(scope="module")
def binary(records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("binary") / "cifar-100-binary"
    folder.mkdir()
    records[:50_000].tofile(folder / "train.bin")
    records[50_000:].tofile(folder / "test.bin")
    return folder


@pytest.fixture(scope="module")
def python(records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("python") / "cifar-100-python"
    folder.mkdir()
    (folder / "train").write_bytes(pickled(records[:50_000]))
    (folder / "test").write_bytes(pickled(records[50_000:]))
    return folder


def pickled(records: np.ndarray, **other: object) -> bytes:
    """Pickle records with the published keys, or with other values of some."""
    values = {"fine_labels": records[:, 1].tolist(), "coarse_labels": records[:, 0].tolist(), "data": records[:, 2:]}
    return pickle.dumps({key.encode(): value for key, value in (values | other).items()}, 4)


def copy_with(folder: Path, here: Path, name: str, content: bytes | None) -> Path:
    """Link the files to another folder, except one with other content, or None to omit it."""
    copy = here / folder.name
    copy.mkdir()
    for file in folder.iterdir():
        if file.name != name:
            (copy / file.name).symlink_to(file)
    if content is not None:
        (copy / name).write_bytes(content)
    return copy


def refusal(folder: Path | None, *words: str) -> str:
    with pytest.raises(UserError) as caught:
        Cifar100(folder)
    text = str(caught.value)
    for word in words:
        assert word in text, text
    assert text.endswith("."), text
    return text


def normalised(pixels: np.ndarray) -> np.ndarray:
    channels = pixels.reshape(len(pixels), 3, 1024) / 255
    return ((channels - MEAN[:, None]) / STD[:, None]).reshape(len(pixels), 3072)


class TestRead:
    def test_the_contract_of_a_source(self, binary):
        source = Cifar100(binary, train=30, evaluation=20)
        assert isinstance(source, Source) and isinstance(source, Labelled)
        assert (source.dim, source.train, source.evaluation, source.fresh) == (3072, 30, 20, False)
        assert source.classes == len(source.names) == 100 and source.image == (3, 32, 32)
        assert source.names[0] == "apple" and source.names[99] == "worm"
        assert source.training(1).shape == (30, 3072) and source.evaluating(1).shape == (20, 3072)
        assert source.training_labels(1).shape == (30,) and source.evaluation_labels(1).shape == (20,)
        assert source == Cifar100(binary, train=30, evaluation=20) and len({source, source}) == 1

    @pytest.mark.parametrize("layout", ["binary", "python"])
    @pytest.mark.parametrize(("labels", "column", "classes"), [("fine", 1, 100), ("coarse", 0, 20)])
    def test_all_images_and_labels_in_their_order(self, request, records, layout, labels, column, classes):
        folder = request.getfixturevalue(layout)
        for given in (folder, str(folder), folder.parent):
            source = Cifar100(given, labels=labels)
            assert source.classes == len(source.names) == classes
            assert np.array_equal(source.training_labels(3), records[:50_000, column])
            assert np.array_equal(source.evaluation_labels(3), records[50_000:, column])
            assert np.array_equal(source._pixels("cpu"), records[:, 2:])
        x = source.evaluating(3, dtype=torch.float64)[:100]
        assert np.allclose(x, normalised(records[50_000:50_100, 2:]), rtol=0, atol=1e-14)

    def test_black_and_white_by_hand(self, binary):
        x = Cifar100(binary).evaluating(1)[:2].view(2, 3, 1024)
        assert torch.allclose(x[0].T, torch.tensor([-1.8971193, -1.8974259, -1.5963070]), rtol=1e-6)
        assert torch.allclose(x[1].T, torch.tensor([1.8439955, 2.0027301, 2.0242578]), rtol=1e-6)

    def test_augmented_images_by_hand(self, binary, records):
        source = Cifar100(binary, augment=True, train=40)
        assert source.fresh
        x = source.training(5, 3, dtype=torch.float64)
        bits = words(5, Stream.AUGMENTATION, 3, 4 * 50_000).view(-1, 4).tolist()
        for row, i in zip(x.numpy(), draw_order(5, Stream.TRAIN, 40, 50_000).tolist(), strict=True):
            down, right, mirrored = (bits[i][j] * below >> 32 for j, below in enumerate((9, 9, 2)))
            around = np.pad(records[i, 2:].reshape(3, 32, 32), ((0, 0), (4, 4), (4, 4)))
            crop = around[:, down : down + 32, right : right + 32][:, :, :: -1 if mirrored else 1]
            assert np.allclose(row, normalised(crop.reshape(1, -1))[0], rtol=0, atol=1e-14)

    def test_pictures_are_the_stored_images(self, binary, records):
        pixels, labels, mean, std = Cifar100(binary).pictures()
        assert pixels.dtype == torch.uint8 and np.array_equal(pixels, records[:, 2:].reshape(-1, 3, 32, 32))
        assert np.array_equal(labels, records[:, 1]) and mean == tuple(MEAN) and std == tuple(STD)
        coarse = Cifar100(binary, labels="coarse").pictures()
        assert np.array_equal(coarse.labels, records[:, 0]) and coarse.pixels.data_ptr() == pixels.data_ptr()

    def test_a_source_survives_its_description(self, binary):
        source = Cifar100(binary, True, 30, 20, "coarse")
        back = restore(describe(source), teachers.distinct_rows((3, 2, 2), seeds=[1]))
        assert type(back) is Cifar100 and back == Cifar100(str(binary), True, 30, 20, "coarse")

    def test_of_two_layouts_the_complete_one_is_read(self, binary, python, tmp_path):
        copy_with(binary, tmp_path, "test.bin", None)
        (tmp_path / python.name).symlink_to(python)
        assert Cifar100(tmp_path)._place.layout == cifar100._PYTHON


class TestSplit:
    @pytest.mark.parametrize("per_class", [51, 150, 500])
    def test_has_equally_many_images_of_each_class(self, binary, per_class):
        source = Cifar100(binary)
        labels = source.pictures().labels
        split = source.split(seed=1, per_class=per_class)
        for part, each in zip(split, (per_class - 50, 50, 500 - per_class), strict=True):
            assert torch.bincount(labels[part], minlength=100).tolist() == [each] * 100
        assert torch.equal(torch.cat(split).sort().values, torch.arange(50_000))

    def test_is_drawn_by_hand(self, binary, records):
        split = Cifar100(binary).split(seed=7, per_class=60, selection=20)
        bits = words(7, Stream.SUBSET, 0, 50_000).numpy()
        for kind in (0, 42, 99):
            members = np.flatnonzero(records[:50_000, 1] == kind)
            members = members[np.argsort(bits[members], kind="stable")]
            parts = [set(part[np.isin(part, members)].tolist()) for part in map(np.asarray, split)]
            assert parts == [{*members[20:60]}, {*members[:20]}, {*members[60:]}]

    def test_depends_on_the_seed_only(self, binary):
        fine, coarse = Cifar100(binary), Cifar100(binary, True, 10, 10, "coarse")
        first = fine.split(3)
        assert all(map(torch.equal, first, coarse.split(3)))
        assert not torch.equal(first.train, fine.split(4).train)
        more = fine.split(3, per_class=250)
        assert torch.equal(more.selection, first.selection)
        assert torch.isin(first.train, more.train).all() and len(more.train) == 20_000

    def test_images_are_equally_likely(self, binary):
        source = Cifar100(binary)
        counts = torch.bincount(torch.cat([source.split(seed).train for seed in range(30)]), minlength=50_000).double()
        # Each image is in a split with probability 1/5.
        spread = float(((counts - 6) ** 2 / (30 * 0.2 * 0.8)).sum())
        assert abs(spread - 50_000) < 4 * math.sqrt(2 * 50_000)

    @pytest.mark.parametrize("per_class", [50, 49, 501])
    def test_another_number_of_images_is_refused(self, binary, per_class):
        text = (
            "per_class must be above the 50 images per class for model selection and at most 500, the images of a "
            f"class, got {per_class}"
        )
        with pytest.raises(UserError, match=text):
            Cifar100(binary).split(1, per_class=per_class)

    @pytest.mark.parametrize(("field", "value"), [("selection", 0), ("per_class", 0), ("per_class", -3)])
    def test_counts_are_whole_numbers(self, binary, field, value):
        with pytest.raises(UserError, match=f"{field} must be a whole number of at least 1, got {value}"):
            Cifar100(binary).split(1, **{field: value})


class TestRejected:
    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"train": 50_001}, "train must be at most 50,000, the number of such images in CIFAR-100, got 50,001"),
            ({"evaluation": 0}, "evaluation must be a whole number of at least 1, got 0"),
            ({"labels": "medium"}, "labels must be 'fine' or 'coarse', got 'medium'"),
        ],
    )
    def test_bad_options(self, binary, given, text):
        with pytest.raises(UserError, match=text):
            Cifar100(binary, **given)

    def test_no_folder(self, tmp_path, monkeypatch):
        absent = tmp_path / "my data"
        command = f"`tar -xzf '{absent}/cifar-100-binary.tar.gz' -C '{absent}'`"
        refusal(absent, f"{absent}: there is no such folder", *DOWNLOAD, command, "$UNDERSTUDY_DATA")
        monkeypatch.setenv("UNDERSTUDY_DATA", str(tmp_path))
        refusal(None, f"{tmp_path}: the folder contains no files of CIFAR-100", *DOWNLOAD)

    @pytest.mark.parametrize("archive", ["cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"])
    def test_an_archive_not_unpacked(self, tmp_path, archive):
        (tmp_path / archive).touch()
        command = f"the archive exists: unpack it with `tar -xzf {tmp_path}/{archive} -C {tmp_path}`."
        for given in (tmp_path, tmp_path / archive, tmp_path / "cifar-100-binary"):
            refusal(given, command)

    @pytest.mark.parametrize(("layout", "name"), [("binary", "test.bin"), ("python", "train")])
    def test_a_missing_file_is_named(self, request, tmp_path, layout, name):
        folder = copy_with(request.getfixturevalue(layout), tmp_path, name, None)
        for given in (folder, tmp_path):
            refusal(given, f"{folder}: the file {name} of CIFAR-100 is missing", *DOWNLOAD, f"-C {tmp_path}`")

    @pytest.mark.parametrize(
        ("size", "text"),
        [
            (30_739_999, "the file must have 30,740,000 bytes, got 30,739,999, so it is damaged"),
            (30_740_001, "the file must have 30,740,000 bytes, got 30,740,001, so it is damaged"),
            (30_730_000, "the file must have 30,740,000 bytes, got 30,730,000, so it is damaged"),
            (0, "the file is empty (0 bytes); a file of 30,740,000 bytes is needed"),
        ],
    )
    def test_another_size(self, binary, tmp_path, size, text):
        folder = copy_with(binary, tmp_path, "test.bin", bytes(size))
        refusal(folder, f"{folder}/test.bin: {text}")

    @pytest.mark.parametrize("layout", ["binary", "python"])
    @pytest.mark.parametrize(
        ("column", "label", "text"),
        [(1, 100, "the fine label 100, outside 0 to 99"), (0, 20, "the coarse label 20, outside 0 to 19")],
    )
    def test_a_label_out_of_range(self, request, records, tmp_path, layout, column, label, text):
        test = records[50_000:].copy()
        test[[1_234, 4_321], column] = label, 255
        name, changed = ("test.bin", test.tobytes()) if layout == "binary" else ("test", pickled(test))
        folder = copy_with(request.getfixturevalue(layout), tmp_path, name, changed)
        refusal(folder, f"{folder}/{name}: record 1234 (counted from 0) has {text}")

    def test_classes_of_another_size(self, binary, records, tmp_path):
        test = records[50_000:].copy()
        bears = np.flatnonzero(test[:, 1] == 3)
        test[bears[:2], 1], test[bears[:2], 0] = 99, PARENTS[99]
        folder = copy_with(binary, tmp_path, "test.bin", test.tobytes())
        refusal(folder, f"{folder}: test.bin must have 100 images per class, got 98 of bear, 102 of worm")

    def test_many_classes_of_another_size_are_not_all_named(self, binary, tmp_path):
        folder = copy_with(binary, tmp_path, "test.bin", bytes(30_740_000))
        text = refusal(folder, "got 10,000 of apple, 0 of aquarium_fish", "other numbers of 90 more classes, so a file")
        assert "worm" not in text

    def test_an_image_in_the_coarse_class_of_another(self, binary, records, tmp_path):
        test = records[50_000:].copy()
        test[17, :2] = (PARENTS[3] + 1) % 20, 3
        swap = 18 + int(np.flatnonzero(test[18:, 1] == 3)[0])  # so that every class keeps its size
        test[swap, :2] = records[50_017, :2]
        folder = copy_with(binary, tmp_path, "test.bin", test.tobytes())
        text = "of fine class bear, is in the coarse class fruit_and_vegetables, but other images of that fine class in"
        refusal(folder, f"{folder}/test.bin: record 17 (counted from 0), {text} food_containers, so it is damaged")

    def test_coarse_classes_of_another_size(self, binary, records, tmp_path):
        train, test = records[:50_000].copy(), records[50_000:].copy()
        train[train[:, 1] == 1, 0] = test[test[:, 1] == 1, 0] = 0
        folder = copy_with(binary, tmp_path, "test.bin", test.tobytes())
        (folder / "train.bin").unlink()
        train.tofile(folder / "train.bin")
        refusal(folder, "train.bin: each coarse class must have 5 fine classes, but aquatic_mammals has 6, so")

    def test_a_truncated_pickle(self, python, records, tmp_path):
        content = pickled(records[50_000:])[:-1]
        folder = copy_with(python, tmp_path, "test", content)
        needed = "a pickled dict of 10,000 fine labels, 10,000 coarse labels and 10,000 × 3,072 pixels is needed"
        refusal(folder, f"{folder}/test: {needed}", f"of {len(content):,} bytes, is truncated or a different file")
        (folder / "test").write_bytes(b"")
        refusal(folder, f"{folder}/test: the file is empty (0 bytes); 10,000 images of CIFAR-100 are needed")

    def test_another_pickle(self, records):
        few, keys, file = records[:20], ("fine_labels", "coarse_labels"), Path("train")

        def parse(content: bytes) -> cifar_files.CifarRecords:
            return cifar_files.parse_pickle(content, file, cifar100._PUBLICATION, images=20, kinds=keys)

        labels, pixels = parse(pickled(few))
        assert np.array_equal(labels, few[:, [1, 0]].T) and np.array_equal(pixels, few[:, 2:])
        for content in (
            pickled(few)[:-1],
            pickled(few)[:1_000],
            pickled(few[1:]),
            pickled(few, fine_labels=few[:, 1].tolist()[1:]),
            pickled(few, coarse_labels=["1"] * 20),
            pickled(few, data=few[:, 3:]),
            pickled(few, data=b"pixels"),
            pickle.dumps({b"fine_labels": [1] * 20}),
            b"not a pickle",
        ):
            with pytest.raises(UserError) as caught:
                parse(content)
            assert "train: a pickled dict of 20 fine labels, 20 coarse labels and 20 × 3,072" in str(caught.value)
            assert f"of {len(content):,} bytes, is truncated or a different file" in str(caught.value)

    def test_a_pickle_is_not_executed(self, python, records, tmp_path):
        class Mischief:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "created"),)

        content = pickled(records[50_000:], fine_labels=Mischief())
        folder = copy_with(python, tmp_path, "test", content)
        refusal(folder, "refers to 'posix.mkdir', but CIFAR-100 is", "nothing was executed", "cifar-100-python.tar.gz.")
        assert not (tmp_path / "created").exists()
        pickle.loads(content)
        assert (tmp_path / "created").exists(), "the file was harmless, so the test proves nothing"


@needs_data
class TestPublished:
    """Tests on the published images, in any order."""

    def test_the_moments_are_those_of_the_training_set(self):
        source = Cifar100()
        pixels = source._pixels("cpu")[:50_000].view(-1, 3, 1024).unbind(1)
        for channel, mean, std in zip(pixels, MEAN, STD, strict=True):
            values = channel.double() / 255
            assert abs(values.mean() - mean) < 5.1e-5 and abs(values.std() - std) < 5.1e-5

    def test_names_are_those_in_the_files(self):
        for labels in ("fine", "coarse"):
            source = Cifar100(labels=labels)
            file = source._place.folder / f"{labels}_label_names.txt"
            if file.exists():
                assert tuple(file.read_text().split()) == source.names

    def test_some_fine_classes_are_in_their_coarse_class(self):
        fine, coarse = Cifar100(), Cifar100(labels="coarse")
        pairs = {*zip(fine.training_labels(1).tolist(), coarse.training_labels(1).tolist(), strict=True)}
        parents = {fine.names[i]: coarse.names[j] for i, j in pairs}
        assert len(pairs) == 100 and parents["apple"] == "fruit_and_vegetables" and parents["worm"][:4] == "non-"
