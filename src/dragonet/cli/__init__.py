"""The command line: one file per command family, and `main`, which turns errors into one readable message.

Nothing heavy is imported before a command runs, so that `dragonet --help` answers at once.
Exit codes: 0 done, 1 the run failed, 2 bad input or usage, 130 interrupted.
"""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130

# turns of GNU OpenMP's waiting loop before a thread sleeps; see docs/design.md
SPIN_COUNT = "2000"


def main() -> None:
    """Run the command line and exit with its code."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)  # read when torch is loaded, which is later
    from dragonet.cli.app import app
    from dragonet.errors import DragonetError

    try:
        app()
    except DragonetError as error:
        print(f"dragonet: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # what typer makes of Ctrl-C, without a word
            print("dragonet: interrupted", file=sys.stderr)
        raise
