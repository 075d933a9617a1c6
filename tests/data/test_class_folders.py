"""Images in class folders: labels and order, crops for training and evaluation, and errors."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from support.images import DAMAGED_PNG
from understudy._errors import UserError
from understudy._random import Stream, words
from understudy.data import ClassFolders
from understudy.data.images.resized_crops import PixelBox, central_crop, draw_box, draw_words

MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
FILES = {
    "train/fish/b.JPEG": (40, 30),
    "train/fish/a.png": (30, 50),
    "train/bird/x.jpg": (64, 64),
    "val/bird/1.png": (48, 32),
    "val/fish/1.png": (20, 45),
    "val/fish/2.png": (32, 32),
}
"""Width and height of each image."""


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    for name, (width, height) in FILES.items():
        save(tmp_path / name, random.integers(0, 256, (height, width, 3), dtype=np.uint8))
    return tmp_path


def save(file: Path, pixels: np.ndarray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)


def stored(x: torch.Tensor) -> np.ndarray:
    """Recover the bytes of a normalised image [3, height, width] as [height, width, 3]."""
    pixels = (x.permute(1, 2, 0) * STD + MEAN) * 255
    assert (pixels - pixels.round()).abs().max() < 1e-3
    return pixels.round().byte().numpy()


def refusal(folder: Path, *words: str) -> None:
    with pytest.raises(UserError) as caught:
        ClassFolders(folder, 16)
    for word in (str(folder), *words):
        assert word in str(caught.value), str(caught.value)


class TestRead:
    def test_classes_and_images_are_sorted_by_name(self, folder):
        source = ClassFolders(folder, 16)
        assert source.names == ("bird", "fish") and source.classes == 2 and source.image == (3, 16, 16)
        assert source.train_labels.tolist() == [0, 1, 1] and source.validation_labels.tolist() == [0, 1, 1]
        names = [str(file.relative_to(folder)) for file in (*source._train.files, *source._validation.files)]
        assert names == [
            "train/bird/x.jpg", "train/fish/a.png", "train/fish/b.JPEG", "val/bird/1.png", "val/fish/1.png",
            "val/fish/2.png",
        ]  # fmt: skip

    def test_hidden_files_and_folders_are_ignored(self, folder):
        (folder / "train/.cache").mkdir()
        (folder / "train/bird/.DS_Store").touch()
        assert len(ClassFolders(folder, 16).train_labels) == 3

    def test_images_are_read_when_they_are_needed(self, folder):
        source = ClassFolders(folder, 16)
        (folder / "val/bird/1.png").unlink()
        assert source.validation_images(torch.tensor([2])).shape == (1, 3, 16, 16)
        with pytest.raises(UserError, match=r"val/bird/1\.png: this is not an image that can be read"):
            source.validation_images(torch.tensor([0]))

    def test_black_and_white_by_hand(self, folder):
        for i, value in enumerate((0, 255)):
            save(folder / f"val/fish/{i + 1}.png", np.full((20, 30, 3), value, np.uint8))
        x = ClassFolders(folder, 16).validation_images(torch.tensor([1, 2]))
        assert x.dtype == torch.float32 and x.shape == (2, 3, 16, 16)
        assert torch.allclose(x[0].flatten(1).T, torch.tensor([-2.1179039, -2.0357143, -1.8044444]), rtol=1e-6)
        assert torch.allclose(x[1].flatten(1).T, torch.tensor([2.2489083, 2.4285714, 2.64]), rtol=1e-6)

    def test_grey_and_transparent_images_get_three_channels(self, folder):
        Image.new("L", (20, 20), 51).save(folder / "val/fish/1.png")
        Image.new("RGBA", (20, 20), (51, 102, 204, 255)).save(folder / "val/fish/2.png")
        x = ClassFolders(folder, 16).validation_images(torch.tensor([1, 2]))
        assert (stored(x[0]) == 51).all() and (stored(x[1]) == [51, 102, 204]).all()


class TestEvaluation:
    def test_the_centre_of_an_image_that_need_not_be_resized(self, folder):
        """A size of 28 resizes the shorter side to 32, which the image has."""
        x = ClassFolders(folder, 28).validation_images(torch.tensor([0]))[0]
        pixels = np.asarray(Image.open(folder / "val/bird/1.png"))
        assert pixels.shape == (32, 48, 3)
        assert np.array_equal(stored(x), pixels[2:30, 10:38])

    @pytest.mark.parametrize(("width", "height"), [(500, 375), (375, 500), (300, 1_000), (100, 90)])
    def test_the_shorter_side_is_resized_to_256_for_a_size_of_224(self, width, height):
        columns, rows = np.meshgrid(np.arange(width), np.arange(height))
        pixels = np.stack((255 * columns / (width - 1), 255 * rows / (height - 1), 0 * rows), axis=2)
        crop = np.asarray(central_crop(Image.fromarray(pixels.round().astype(np.uint8)), 224), float)
        assert crop.shape == (224, 224, 3)
        for values, side in ((crop[112, :, 0], width), (crop[:, 112, 1], height)):
            scale = 256 / min(width, height)
            # Brightness grows from 0 to 255 over the image, and 224 / scale pixels of it are seen around the centre.
            assert abs(values.mean() - 127.5) < 1.5
            assert abs((values[-1] - values[0]) - 255 * 223 / scale / (side - 1)) < 2.5


class TestTraining:
    def test_is_a_function_of_seed_epoch_and_image(self, folder):
        source, index = ClassFolders(folder, 16), torch.tensor([0, 1, 2])
        x = source.train_images(index, seed=1, epoch=2)
        assert x.shape == (3, 3, 16, 16) and torch.equal(x, source.train_images(index, seed=1, epoch=2))
        assert torch.equal(x[[2, 0]], source.train_images(torch.tensor([2, 0]), seed=1, epoch=2))
        for seed, epoch in ((2, 2), (1, 3)):
            other = source.train_images(index, seed=seed, epoch=epoch)
            assert not any(map(torch.equal, x, other))

    def test_one_crop_by_hand(self, folder):
        source = ClassFolders(folder, 16)
        x = source.train_images(torch.tensor([1]), seed=4, epoch=6)[0]
        bits = words(4, Stream.AUGMENTATION, (6 << 32) + 1, 41).tolist()
        first = next(i for i in range(10) if fits(bits[4 * i : 4 * i + 4], 30, 50))
        left, top, width, height = fits(bits[4 * first : 4 * first + 4], 30, 50)
        image = Image.open(folder / "train/fish/a.png").crop((left, top, left + width, top + height))
        crop = np.asarray(image.resize((16, 16), Image.Resampling.BILINEAR))
        assert np.array_equal(stored(x), crop[:, ::-1] if bits[40] >= 2**31 else crop)

    def test_a_crop_of_everything_is_the_image(self, folder, monkeypatch):
        pixels = np.asarray(Image.open(folder / "train/fish/a.png"))[:30]
        save(folder / "train/fish/a.png", pixels)
        monkeypatch.setattr("understudy.data.images.resized_crops.draw_box", lambda bits, w, h: PixelBox(0, 0, w, h))
        source = ClassFolders(folder, 30)
        seen = [stored(source.train_images(torch.tensor([1]), seed=1, epoch=epoch)[0]) for epoch in range(1, 21)]
        plain = sum(np.array_equal(image, pixels) for image in seen)
        assert 4 <= plain <= 16 and plain + sum(np.array_equal(image, pixels[:, ::-1]) for image in seen) == 20

    def test_boxes_have_the_stated_areas_and_ratios(self):
        width, height = 500, 400
        boxes = [draw_box(bits, width, height) for bits in draw_words(1, 1, torch.arange(2_000))]
        area = np.array([box.width * box.height for box in boxes]) / (width * height)
        ratio = np.array([box.width / box.height for box in boxes])
        assert 0.079 < area.min() < 0.09 and 0.9 < area.max() <= 1.0
        assert 0.745 < ratio.min() < 0.76 and 1.31 < ratio.max() < 1.34
        small = area < 0.4  # which always fit, so that nothing is drawn again
        logs, n = np.log(ratio[small]), small.sum()
        assert abs(logs.mean()) < 4 * math.log(16 / 9) / math.sqrt(12 * n)
        assert abs(area[small].mean() - 0.24) < 4 * 0.32 / math.sqrt(12 * n)
        for box in boxes:
            assert 0 <= box.left <= width - box.width and 0 <= box.top <= height - box.height
        within = [box for box, each in zip(boxes, small, strict=True) if each]
        places = np.array([(box.left / (width - box.width), box.top / (height - box.height)) for box in within])
        assert (abs(places.mean(0) - 0.5) < 4 / np.sqrt(12 * n)).all()

    @pytest.mark.parametrize(
        ("size", "box"), [((1_000, 10), PixelBox(493, 0, 13, 10)), ((10, 1_000), PixelBox(0, 493, 10, 13))]
    )
    def test_an_image_in_which_nothing_fits_gives_its_centre(self, size, box):
        """At least 8% of the area, 800 pixels, with a ratio of at most 4/3 is higher than 10."""
        assert draw_box(draw_words(1, 1, torch.arange(1))[0], *size) == box


def fits(bits: list[int], width: int, height: int) -> tuple[int, int, int, int] | None:
    """The box of one attempt, if it fits into the image."""
    area = width * height * (0.08 + 0.92 * (bits[0] + 0.5) / 2**32)
    ratio = 0.75 * (16 / 9) ** ((bits[1] + 0.5) / 2**32)
    wide, high = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
    if wide > width or high > height:
        return None
    return bits[2] * (width - wide + 1) >> 32, bits[3] * (height - high + 1) >> 32, wide, high


class TestRejected:
    def test_no_folder(self, folder):
        refusal(folder / "absent", "there is no such folder; give the folder that contains train/<class>/*.jpg and val")
        refusal(folder / "train", "train/train: there is no such folder")
        refusal(folder / "val/bird/1.png", "this is a file")

    def test_no_class_folders(self, tmp_path):
        for part in ("train", "val"):
            (tmp_path / part).mkdir()
        save(tmp_path / "train/1.png", np.zeros((4, 4, 3), np.uint8))
        refusal(tmp_path, f"{tmp_path}/train: there are no class folders in this folder; give the folder that contains")

    def test_different_classes(self, folder):
        (folder / "val/cat").mkdir()
        refusal(
            folder, "train and val must have the same class folders, but cat is only in val; add or remove folders."
        )
        for i in range(7):
            (folder / f"train/dog{i}").mkdir()
        refusal(folder, "but dog0, dog1, dog2, dog3, dog4, 2 more are only in train and cat is only in val;")

    def test_a_class_without_images(self, folder):
        for part in ("train", "val"):
            (folder / part / "cat").mkdir()
        refusal(folder, f"{folder}/train/cat: the class has no images; add some, or remove the folder.")

    def test_a_file_of_another_kind(self, folder):
        (folder / "val/fish/notes.txt").write_text("a fish")
        refusal(folder, f"{folder}/val/fish/notes.txt: this is not an image", "none of .jpg", "replace or remove")

    @pytest.mark.parametrize("content", [b"", b"not an image", None], ids=["empty", "text", "truncated"])
    def test_a_file_that_cannot_be_decoded(self, folder, content):
        file = folder / "train/bird/x.jpg"
        file.write_bytes(file.read_bytes()[:600] if content is None else content)
        source = ClassFolders(folder, 16)
        assert source.train_images(torch.tensor([1]), seed=1, epoch=1).shape == (1, 3, 16, 16)
        with pytest.raises(UserError, match=r"train/bird/x\.jpg: this is not an image that can be read .* replace or"):
            source.train_images(torch.tensor([1, 0]), seed=1, epoch=1)

    def test_pixels_that_differ_from_their_checksum_are_refused(self, folder):
        (folder / "train/bird/x.jpg").write_bytes(DAMAGED_PNG)
        with pytest.raises(UserError, match=r"x\.jpg: this is not an image that can be read \(broken PNG file"):
            ClassFolders(folder, 16).train_images(torch.tensor([0]), seed=1, epoch=1)

    def test_bad_values(self, folder):
        source = ClassFolders(folder, 16)
        for index in (-1, 3):
            with pytest.raises(UserError, match=f"index must be from 0 to 2, the last image, got {index}"):
                source.train_images(torch.tensor([index]), seed=1, epoch=1)
        with pytest.raises(UserError, match="epoch must be a whole number of at least 1, got 0"):
            source.train_images(torch.tensor([0]), seed=1, epoch=0)
        with pytest.raises(UserError, match="size must be a whole number of at least 1, got 0"):
            ClassFolders(folder, 0)
