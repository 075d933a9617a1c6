"""Jobs in processes of their own: their order, cores and memory, failures, and interruption."""

import json
import os
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from understudy.lab.reproduce import Job, LiveTable, run_jobs
from understudy.lab.reproduce.processes import JobState
from understudy.store.folder import RunFolder

WORK = """
import json, os, time
start = time.monotonic()
folder = {folder!r}
os.makedirs(folder, exist_ok=True)
end = start + 60
while len(os.listdir(os.path.dirname(folder))) < {beside} and time.monotonic() < end:
    time.sleep(0.02)
time.sleep({seconds})
made = {{"start": start, "end": time.monotonic(), "cores": sorted(os.sched_getaffinity(0)),
         "memory": int(os.environ["UNDERSTUDY_MEMORY"])}}
json.dump(made, open(folder + "/made.json", "w"))
open(folder + "/report.html", "w").close()
"""
FAIL = "import sys; sys.exit('understudy: the disk is full')"


class Silent:
    def show(self, job_states):
        pass


@pytest.fixture
def job(tmp_path):
    """Make a job without a study, on the CPU unless it is to have the GPU."""

    def make(name, *after, gpu=False, seconds=None):
        study = SimpleNamespace(device="cuda" if gpu else "cpu")
        return Job(study, name, "paper", tmp_path / name, after, seconds, None)

    return make


def working(seconds=0.3, beside=1):
    """What a job does: wait until so many jobs have started, and then this long."""
    return lambda job: ["-c", WORK.format(folder=str(job.folder), seconds=seconds, beside=beside)]


def made(job):
    return json.loads((job.folder / "made.json").read_text())


def states(job_states):
    return {each.job.label: each.state for each in job_states}


def test_jobs_wait_for_those_that_they_start_from(job):
    first = job("first")
    second = job("second", first)
    job_states = run_jobs([first, second], working(), Silent())
    assert states(job_states) == {"first": "done", "second": "done"}
    assert made(first)["end"] <= made(second)["start"]
    assert all(each.seconds > 0.3 for each in job_states)


def test_a_job_that_is_done_is_not_run_again(job):
    one = job("one")
    run_jobs([one], working(), Silent())
    before = made(one)
    (again,) = run_jobs([one], working(), Silent())
    assert again.state == "done" and again.seconds == 0 and made(one) == before


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_jobs_beside_each_other_share_cores_and_memory(job):
    jobs = [job(name) for name in "abcd"]
    run_jobs(jobs, working(beside=2), Silent())
    found = [made(each) for each in jobs]
    beside = [
        (one, other)
        for i, one in enumerate(found)
        for other in found[i + 1 :]
        if one["start"] < other["end"] and other["start"] < one["end"]
    ]
    assert beside and not any(set(one["cores"]) & set(other["cores"]) for one, other in beside)
    # As much memory for each core, so that jobs beside each other have no more than all.
    each = [one["memory"] / len(one["cores"]) for one in found]
    assert max(each) - min(each) <= 1
    alone = job("alone")
    run_jobs([alone], working(), Silent())
    assert set(made(alone)["cores"]) == os.sched_getaffinity(0)
    assert made(alone)["memory"] > found[0]["memory"]


def test_one_job_at_a_time_has_the_gpu(job):
    jobs = [job(f"gpu {i}", gpu=True) for i in range(3)] + [job("cpu")]
    run_jobs(jobs, working(0.2), Silent())
    times = sorted((made(each)["start"], made(each)["end"]) for each in jobs[:3])
    assert all(one[1] <= other[0] for one, other in pairwise(times))


def test_the_longest_chain_starts_first(job):
    short, long = job("short", seconds=1), job("long", seconds=2)
    last = job("last", short, seconds=10)
    order = []
    run_jobs([long, short, last], lambda each: order.append(each.label) or working(0)(each), Silent())
    assert order.index("short") < order.index("long")


def test_the_gpu_is_never_idle_for_want_of_a_core(job):
    long = [job(f"cpu {i}", seconds=100) for i in range(8)]
    gpu = [job(f"gpu {i}", gpu=True, seconds=1) for i in range(2)]
    order = []
    run_jobs([*long, *gpu], lambda each: order.append(each.label) or working(0.3 if each.gpu else 0.4)(each), Silent())
    assert order[0] == "gpu 0"
    # The second has the core that the first has left, before the others that wait.
    started = sorted(made(each)["start"] for each in long)
    assert made(gpu[1])["start"] < started[len(os.sched_getaffinity(0))]


def test_a_failure_stops_only_what_starts_from_it(job):
    lost = job("lost")
    later, last, other = job("later", lost), job("last", lost), job("other")
    words = working(0)
    job_states = run_jobs(
        [lost, later, last, other], lambda each: ["-c", FAIL] if each is lost else words(each), Silent()
    )
    assert states(job_states) == {"lost": "failed", "later": "skipped", "last": "skipped", "other": "done"}
    why = {each.job.label: each.line for each in job_states}
    assert why["lost"] == "the disk is full" and why["later"] == "starts from lost, which failed"


def test_a_killed_process_is_a_failure(job):
    one = job("one")
    (ended,) = run_jobs([one], lambda each: ["-c", "import os; os.kill(os.getpid(), 9)"], Silent())
    assert (ended.state, ended.line) == ("failed", "ended by SIGKILL")


def test_a_run_of_another_process_is_waited_for(job):
    one = job("one")
    one.folder.mkdir()
    seen = []

    class Finish:
        def show(self, job_states):
            seen.append(job_states[0].line)
            if len(seen) == 3:
                (one.folder / "report.html").touch()

    with RunFolder(one.folder).alone():
        (job_state,) = run_jobs([one], working(0), Finish())
    assert job_state.state == "done" and "another process is working on it" in seen
    assert not (one.folder / "made.json").exists()


def test_lines_say_what_each_job_does(job, capsys):
    one, other = JobState(job("one")), JobState(job("other"), line="another process is working on it")
    with LiveTable() as shown:
        shown.show([one, other])
        shown.show([one, other])
        one.state, other.state, other.line = "running", "running", "epoch 3"
        shown.show([one, other])
        one.state, one.seconds, other.state, other.line = "done", 61.0, "failed", "the disk is full"
        shown.show([one, other])
    assert capsys.readouterr().err.splitlines() == [
        "waiting: other: another process is working on it",
        "running: one",
        "running: other",
        "done in 1 min 1 s: one",
        "failed: other: the disk is full",
    ]
    with LiveTable(show=False) as hidden:
        hidden.show([one, other])
    assert capsys.readouterr().err == ""


def test_ctrl_c_interrupts_every_process_once(job, tmp_path):
    script = """
import pathlib, signal, sys, time
folder = pathlib.Path({folder!r}); folder.mkdir(exist_ok=True)
def stop(*_):
    with open(folder / "saved", "a") as file: file.write("x")
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
(folder / "ready").touch()
time.sleep(60)
"""
    jobs = [job("a"), job("b")]

    class Interrupt:
        def show(self, job_states):
            if all((each.folder / "ready").exists() for each in jobs):
                raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, lambda each: ["-c", script.format(folder=str(each.folder))], Interrupt())
    assert time.monotonic() - start < 20
    assert [Path(each.folder / "saved").read_text() for each in jobs] == ["x", "x"]
