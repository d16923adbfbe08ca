"""The demo for several seeds, one after the other, with what this machine can do beside it.

Prints held-out reward before and after, the share of well-formed answers, and seconds of training and evaluation; then
the medians. Run it on quiet cores: .venv/bin/python benchmarks/demo.py --seeds 1 2 3
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time


def matrix_speed(dtype_name: str, rows: int = 32, hidden: int = 576, inner: int = 1536) -> float:
    """Return GFLOP/s of a matrix product of the bundled model's MLP shape, the best of ten bursts."""
    import torch

    dtype = getattr(torch, dtype_name)
    a, b = torch.randn(rows, hidden).to(dtype), torch.randn(hidden, inner).to(dtype)
    best = 0.0
    for _ in range(10):
        started = time.perf_counter()
        for _ in range(50):
            a @ b
        best = max(best, 50 * 2.0 * rows * hidden * inner / (time.perf_counter() - started))
    return best / 1e9


def one(seed: int, runs_dir: str) -> dict[str, object]:
    """Run the demo in a process of its own; return its JSON line with the wall seconds of the whole command."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "dragonet", "demo", "--json", "--seed", str(seed), "--runs-dir", runs_dir]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1]) | {"seed": seed, "wall_s": time.perf_counter() - started}


def main() -> None:
    """Run the seeds and print a table and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    seeds = parser.parse_args().seeds
    print(f"matrix product: {matrix_speed('float32'):.0f} GFLOP/s float32, {matrix_speed('bfloat16'):.0f} bfloat16")
    with tempfile.TemporaryDirectory() as runs_dir:
        results = [one(seed, runs_dir) for seed in seeds]
    for r in results:
        print(json.dumps(r))
    gains = [r["after"] - r["before"] for r in results]
    print(
        f"median gain {statistics.median(gains):.3f}, median training and evaluation "
        f"{statistics.median(r['seconds'] for r in results):.0f} s, whole command "
        f"{statistics.median(r['wall_s'] for r in results):.0f} s"
    )


if __name__ == "__main__":
    main()
