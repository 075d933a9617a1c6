"""Server of runs that are killed: each line on standard input is `N OUT WORDS…`, run as `understudy WORDS…` in OUT.

The process kills itself (SIGKILL) just before its N-th change of the disk; with N = 0 it runs to its end. The server
prints one line of JSON: the status (−9 if killed), the number of changes, and the text of standard error. Processes are
forked from one that has imported everything, so that a hundred cost little more than one.
"""

import json
import mmap
import os
import signal
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path

from understudy import cli
from understudy.store.writer import BackgroundWriter

_CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree")


def _kill_before(change: int, count: mmap.mmap) -> None:
    def hook(event: str, details: tuple[object, ...]) -> None:
        flags = details[2] if event == "open" else 0
        if event in _CHANGES or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)):
            made = int.from_bytes(count[:]) + 1
            if made == change:
                os.kill(os.getpid(), signal.SIGKILL)
            count[:] = made.to_bytes(len(count))

    sys.addaudithook(hook)


def _run(change: int, out: str, words: list[str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as scratch, mmap.mmap(-1, 8) as count:
        stderr = Path(scratch) / "stderr"
        child = os.fork()
        if not child:
            os.chdir(out)
            for stream, path in ((1, os.devnull), (2, str(stderr))):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
            sys.argv = ["understudy", *words]
            _kill_before(change, count)
            status = 1
            try:
                status = cli.main()
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        made = int.from_bytes(count[:])
        return {"status": status, "changes": made, "stderr": stderr.read_text(encoding="utf-8")}


def _after_every_epoch(writer: BackgroundWriter) -> bool:
    """Save after every epoch, so that a run can be killed in each and makes the same changes every time."""
    writer.wait()
    return True


def main() -> None:
    for room in ("data", "students", "teachers", "training", "lab.execute", "papers.specialization.two_layer.story"):
        import_module(f"understudy.{room}")
    from understudy.report.page.document import _packed_plotly

    _packed_plotly()
    BackgroundWriter.due = _after_every_epoch  # type: ignore[method-assign]
    print("ready", flush=True)
    for line in sys.stdin:
        change, out, *words = line.split()
        print(json.dumps(_run(int(change), out, words)), flush=True)


if __name__ == "__main__":
    main()
