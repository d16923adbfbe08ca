"""Calls into real worker processes: deadlines, crashes, output, and that nothing is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dragonet.errors import ConfigError, UserCodeError
from dragonet.host.pool import Pool


@pytest.fixture(autouse=True)
def probe_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


@pytest.fixture
def make_pool() -> Iterator[Callable[..., Pool]]:
    pools: list[Pool] = []

    def make(workers: int = 1, start_timeout_s: float = 60.0, **arguments: Any) -> Pool:
        pools.append(Pool("probe_handlers:make", arguments, workers=workers, start_timeout_s=start_timeout_s))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool], within_s: float = 10.0) -> bool:
    limit = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def test_answers_come_in_order_from_one_worker_that_starts_once(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool(colour="red")
    assert pool.start() == ["colour"]
    outcomes = pool.call([*range(600), "pid", "pid", "torch"], 5.0)
    assert [o.value for o in outcomes[:600]] == list(range(600))
    assert outcomes[600].value == outcomes[601].value != os.getpid()
    assert outcomes[602].value is False
    assert pool.call([], 5.0) == []


def test_a_bad_call_costs_only_itself(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    payloads = ["a", "spin", "exit", "crash", "fail", "sys.exit", "spam", "forked", "z"]
    outcomes = dict(zip(payloads, pool.call(payloads, 0.8), strict=True))
    assert {name: o.status for name, o in outcomes.items()} == {
        "a": "ok",
        "spin": "late",
        "exit": "died",
        "crash": "died",
        "fail": "raised",
        "sys.exit": "raised",
        "spam": "late",
        "forked": "died",
        "z": "ok",
    }
    assert outcomes["spin"].detail == "took longer than 0.8 s"
    assert outcomes["exit"].detail == "the worker exited with code 3"
    assert "SIGSEGV" in outcomes["crash"].detail
    assert "in crash" in outcomes["crash"].detail  # the fault handler's lines came along
    assert outcomes["fail"].detail == "ValueError: no \\ud83d"
    assert len(pool.take_output()) <= 64 * 1024


def test_what_is_printed_is_kept_apart_from_answers(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    assert [o.value for o in pool.call(["speak", "b"], 5.0)] == [1, "b"]
    assert pool.take_output() == "out \\ud83d\nerr\nraw\n"
    assert pool.take_output() == ""


def test_each_call_gets_its_own_copy(make_pool: Callable[..., Pool]) -> None:
    shared: list[str] = []
    outcomes = make_pool().call([shared, shared], 5.0)
    assert [o.value for o in outcomes] == [["seen"], ["seen"]]
    assert shared == []


def test_what_cannot_be_sent_fails_alone(make_pool: Callable[..., Pool]) -> None:
    first, second = make_pool().call([lambda: 1, "b"], 5.0)
    assert first.status == "raised"
    assert "cannot be sent" in first.detail
    assert second.value == "b"


def test_garbage_in_the_reply_pipe_is_no_answer(make_pool: Callable[..., Pool]) -> None:
    garbled, after = make_pool().call(["garble", "b"], 5.0)
    assert garbled.status == "died"
    assert after.value == "b"


def test_a_worker_that_ended_while_idle_is_replaced_without_blame(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    (pid,) = pool.call(["pid"], 5.0)
    pool.call(["late_exit"], 5.0)
    assert wait_until(lambda: not alive(pid.value))
    assert [o.value for o in pool.call(["a", "b"], 5.0)] == ["a", "b"]


def test_errors_at_start(make_pool: Callable[..., Pool]) -> None:
    before = set(psutil.Process().children())
    with pytest.raises(ConfigError, match=r"^not today$"):
        make_pool(refuse=True).start()
    with pytest.raises(UserCodeError, match=r"exited with code 7 while loading; it printed last:\nleaving early"):
        make_pool(exit=True).call(["a"], 5.0)
    with pytest.raises(UserCodeError, match=r"loading took longer than 0\.3 s"):
        make_pool(hang=True, start_timeout_s=0.3).start()
    left = set(psutil.Process().children()) - before
    assert not [p for p in left if p.status() != psutil.STATUS_ZOMBIE]


def test_nothing_is_left_behind(make_pool: Callable[..., Pool]) -> None:
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    pool = make_pool()
    worker, grandchild = (o.value for o in pool.call(["pid", "child"], 5.0))
    pool.call(["spin"], 0.2)  # killed with what it started
    assert wait_until(lambda: not alive(grandchild))
    worker, grandchild = (o.value for o in pool.call(["pid", "child"], 5.0))
    pool.close()
    assert wait_until(lambda: not alive(grandchild))
    assert not psutil.pid_exists(worker)  # collected, not a zombie
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) == before
    assert pool.call(["a"], 5.0)[0].value == "a"  # a closed pool starts anew


def test_a_forgotten_pool_ends_its_workers() -> None:
    pool = Pool("probe_handlers:make", {})
    (pid,) = pool.call(["pid"], 5.0)
    del pool
    gc.collect()
    assert not psutil.pid_exists(pid.value)


def test_works_from_threads_that_come_and_go(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    answers: list[Any] = []

    def ask() -> None:
        answers.append(pool.call(["pid"], 5.0)[0].value)

    for _ in range(2):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        time.sleep(0.1)
    assert answers[0] == answers[1]  # it did not end with the thread that started it


def test_several_workers_share_the_calls(make_pool: Callable[..., Pool]) -> None:
    outcomes = make_pool(workers=2).call(["pid", "spin", *range(30)], 0.8)
    assert outcomes[1].status == "late"
    assert [o.value for o in outcomes[2:]] == list(range(30))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_its_own_worker(make_pool: Callable[..., Pool]) -> None:
    pool = make_pool()
    (mine,) = pool.call(["pid"], 5.0)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            (theirs,) = pool.call(["pid"], 5.0)
            pool.close()
            code = 0 if theirs.value not in (mine.value, None) else 2
        finally:
            os._exit(code)
    os.close(read)
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.call(["pid"], 5.0)[0].value == mine.value


TRAINER = """
import os, sys, time
from dragonet.host.pool import Pool
pool = Pool("probe_handlers:make", {})
print(*[o.value for o in pool.call(["pid", "child"], 20)], flush=True)
if os.fork() == 0:  # a data loader, say, that outlives its parent
    time.sleep(4)
    os._exit(0)
pool.call(["spin"], 600)
"""


def test_workers_die_with_a_killed_parent_even_while_they_spin() -> None:
    trainer = subprocess.Popen([sys.executable, "-W", "ignore", "-c", TRAINER], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    with trainer, trainer.stdout:
        pids = [int(pid) for pid in trainer.stdout.readline().split()]
        assert all(map(alive, pids))
        trainer.send_signal(signal.SIGKILL)
        assert wait_until(lambda: not any(map(alive, pids)), within_s=3.0)
