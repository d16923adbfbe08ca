"""From the user's table to prompts: load, map by templates, hold out, preview.

Owns what a cell means and which column plays which role. Refuses to know tokens and rewards. Loads no torch;
`preview` alone asks the models room for a tokenizer, when it is called.
"""

from __future__ import annotations

from dragonet.data.dataset import Dataset
from dragonet.data.jsonl import prompt_from_json, prompt_to_json, prompts_from_jsonl, prompts_to_jsonl
from dragonet.data.load import load_dataset
from dragonet.data.split import Split

__all__ = [
    "Dataset",
    "Split",
    "load_dataset",
    "prompt_from_json",
    "prompt_to_json",
    "prompts_from_jsonl",
    "prompts_to_jsonl",
]
