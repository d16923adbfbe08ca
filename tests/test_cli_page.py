"""The command line's page says what the commands say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_page_holds_every_commands_help():
    check = subprocess.run([sys.executable, ROOT / "scripts" / "cli-help"], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stderr
