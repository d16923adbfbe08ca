"""A second Ctrl-C raises wherever the process happens to be, also inside the event loop that samples."""

from __future__ import annotations

import textwrap
from pathlib import Path

from assemble.forking import Server

TRIES = 25  # asyncio.run hangs in one of three

SCRIPT = f"""
import asyncio, random, signal
from dragonet.rollout.collect import run_sync

def interrupt(signum, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)

async def sampling():
    async def one():
        for _ in range(500):
            await asyncio.sleep(0)
    await asyncio.gather(*(one() for _ in range(4)))

moments = random.Random(1)
interrupted = 0
for _ in range({TRIES}):
    try:
        signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.0005, 0.01))
        for _ in range(200):
            run_sync(sampling())
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
print(interrupted)
"""


def test_an_interrupt_in_the_middle_of_sampling_never_waits_for_a_task_that_will_not_wake(
    forks: Server, place: Path
) -> None:
    path = place / "interrupted.py"
    path.write_text(textwrap.dedent(SCRIPT), "utf-8")
    done = forks.start(script=str(path)).wait(timeout_s=30)
    assert done.code == 0, done
    # a few are lost to finalizers, in which Python ignores what a handler raises
    assert int(done.out) > TRIES * 0.8
