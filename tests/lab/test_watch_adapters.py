"""`us.watch` in the trainers of Lightning and Hugging Face, with the real packages."""

import builtins
import sys
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import understudy as us
from support.modules import dense, seeded
from understudy import UserError

pytestmark = pytest.mark.usefixtures("one_thread")
X = torch.randn(48, 5, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def pages_only(monkeypatch):
    monkeypatch.setattr("understudy.report.pool.draw", lambda kind: {"pdf": b"", "svg": b""})


def lightning_module(package, teacher, student, fails_at=-1):
    class Distillation(package.LightningModule):
        def __init__(self):
            super().__init__()
            self.student = student

        def training_step(self, x, i):
            if self.global_step == fails_at:
                raise ZeroDivisionError
            loss = (self.student(x) - teacher(x)).square().mean()
            return {"loss": loss, "twice": 2 * loss.detach()}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Distillation()


def lightning_trainer(package, watch, folder, **more):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "accelerator": "cpu", "default_root_dir": folder}
    return package.Trainer(callbacks=[watch.lightning()], **quiet, **more)


@pytest.mark.filterwarnings(  # warnings of Lightning
    "ignore:.*LeafSpec.* is deprecated", "ignore:.*does not have many workers", "ignore:GPU available but not used"
)
@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning(name, tmp_path, monkeypatch):
    package = import_module(name)
    other = {"lightning.pytorch": "pytorch_lightning", "pytorch_lightning": "lightning.pytorch"}[name]
    monkeypatch.delitem(sys.modules, other, raising=False)
    teacher, student = seeded(dense, 5, 6, 2), seeded(dense, 5, 8, 2, seed=1).train()
    loader = DataLoader(X, batch_size=8)
    watch = us.watch(teacher, student, X, every=2, out=tmp_path / "run")
    # Twelve batches, and an optimiser step for every second.
    trainer = lightning_trainer(package, watch, tmp_path, max_epochs=2, accumulate_grad_batches=2)
    trainer.fit(lightning_module(package, teacher, student), loader)
    run = us.Run(tmp_path / "run")
    assert run.table("layers").to_pandas()["step"].unique().tolist() == [0, 2, 4, 6]
    np.testing.assert_allclose(run.series("twice")[0, 1:], 2 * run.series("loss")[0, 1:], rtol=1e-6)
    assert (run.folder / "report.html").is_file() and student.training

    failing = us.watch(teacher, student, X, every=2, out=tmp_path / "failing")
    with pytest.raises(ZeroDivisionError):
        lightning_trainer(package, failing, tmp_path, max_epochs=2).fit(
            lightning_module(package, teacher, student, fails_at=5), loader
        )
    assert us.Run(tmp_path / "failing").epochs.tolist() == [0, 1, 2] and failing.steps == 5


class Distilled(nn.Module):
    """A student that returns a dict with its loss, as Hugging Face's trainer expects."""

    def __init__(self, teacher, student):
        super().__init__()
        self.student, self._teacher = student, [teacher]

    def forward(self, x):
        made = self.student(x)
        return {"loss": (made - self._teacher[0](x)).square().mean(), "logits": made}


def test_transformers(tmp_path, capsys):
    transformers = import_module("transformers")
    teacher, student = seeded(dense, 5, 6, 2), seeded(dense, 5, 8, 2, seed=1).train()
    arguments = transformers.TrainingArguments(
        output_dir=tmp_path / "trainer",
        max_steps=5,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    watch = us.watch(teacher, student, X, every=2, out=tmp_path / "run")
    trainer = transformers.Trainer(
        Distilled(teacher, student), arguments, train_dataset=[{"x": x} for x in X], callbacks=[watch.transformers()]
    )
    trainer.train()
    run = us.Run(tmp_path / "run")
    assert run.table("layers").to_pandas()["step"].unique().tolist() == [0, 2, 4, 5]
    logged = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    means = [np.mean(logged[:2]), np.mean(logged[2:4]), logged[4]]
    np.testing.assert_allclose(run.series("loss")[0, 1:], means, rtol=1e-6)
    assert (run.folder / "report.html").is_file() and "overhead" in capsys.readouterr().err


def test_a_training_that_continues_elsewhere_than_its_run_is_refused(tmp_path):
    teacher, student = seeded(dense, 5, 6, 2), seeded(dense, 5, 8, 2, seed=1)
    with us.watch(teacher, student, X, every=2, out=tmp_path / "run") as watch:
        callback = watch.transformers()
        state = sys.modules["transformers"].TrainerState(global_step=7)
        with pytest.raises(UserError, match=r"continues at step 7 and its run at step 0; give us.watch resume=7"):
            callback.on_train_begin(None, state, None)
        watch.stop()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lightning", "Lightning is not installed; install it with `pip install lightning`"),
        ("transformers", "transformers is not installed; install it with `pip install transformers accelerate`"),
    ],
)
def test_a_missing_package_says_how_to_install_it(name, words, tmp_path, monkeypatch):
    teacher, student = seeded(dense, 5, 6, 2), seeded(dense, 5, 8, 2, seed=1)
    watch = us.watch(teacher, student, X, out=tmp_path / "run")
    for module in [module for module in sys.modules if module.split(".")[0] in (name, "pytorch_lightning")]:
        monkeypatch.delitem(sys.modules, module)
    real = builtins.__import__

    def missing(module, *rest):
        if module.split(".")[0] == name:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(module, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.setattr("understudy.lab.watch.adapters.import_module", lambda module: missing(module))
    with pytest.raises(UserError) as refused:
        getattr(watch, name)()
    assert str(refused.value) == words
    watch.stop()
