"""Thread pins and offline switches for every test; set before torch is imported."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
# converted models are kept between runs of the suite, apart from the user's own cache
os.environ.setdefault("DRAGONET_CACHE", str(Path(__file__).resolve().parent.parent / ".cache" / "dragonet"))
