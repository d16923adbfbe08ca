"""The public names: lazy, complete, and not hidden by a module of the same name."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import dragonet.models as models


def test_every_public_name_resolves_to_what_its_home_defines() -> None:
    assert sorted(models._HOMES) == models.__all__
    for name, home in models._HOMES.items():
        assert getattr(models, name) is getattr(importlib.import_module(home), name)


def test_no_module_bears_a_public_name() -> None:
    modules = {path.stem for path in Path(str(models.__file__)).parent.glob("*.py")}
    assert not modules & set(models.__all__)


def test_importing_and_listing_load_no_torch() -> None:
    code = (
        "import sys, dragonet.models as m; m.list_bundled(); m.ModelRef; m.LoraSpec; m.resolve;"
        "print([x for x in ('torch', 'transformers', 'peft') if x in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
