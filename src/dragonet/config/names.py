"""Names from elsewhere and names of later: other trainers' spellings, and keys that this release does not have yet.

To teach dragonet another trainer's key, add a line to ALIASES. A value is taken as it is; where the other trainer
counts something else, the note says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dragonet.config.read import Draft
from dragonet.config.words import KeyPath, dotted, show

ALIAS_SECTIONS = ("reinforce", "train")  # an alias may stand in one of these or at the top


@dataclass(frozen=True, slots=True)
class Alias:
    """Where a foreign key goes, and what its users should know."""

    target: tuple[str, str]
    note: str = ""


ALIASES = {
    "num_generations": Alias(("reinforce", "group_size")),
    "max_completion_length": Alias(("reinforce", "max_new_tokens")),
    "per_device_train_batch_size": Alias(("train", "batch_size"), "it counts prompts, not completions"),
}

LATER_SECTIONS = frozenset({"agent", "router", "sandbox", "sft", "prefer"})

LATER_VALUES: dict[tuple[str, str], frozenset[str]] = {
    ("reinforce", "estimator"): frozenset({"gae", "gdpo"}),
    ("reinforce", "loss"): frozenset({"gspo", "cispo", "sapo"}),
    ("train", "keep"): frozenset({"best"}),
}


def alias_at(path: KeyPath) -> Alias | None:
    """Return the alias a key is, if it stands where aliases may stand."""
    if len(path) == 1 or (len(path) == 2 and path[0] in ALIAS_SECTIONS):
        return ALIASES.get(str(path[-1]))
    return None


def alias_notice(path: KeyPath, alias: Alias, value: Any) -> str:
    """Say how a foreign key was read."""
    note = f" ({alias.note})" if alias.note else ""
    return f"{path[-1]} is TRL's name, read as {'.'.join(alias.target)}={dotted((value,))}{note}"


def rename_aliases(draft: Draft) -> None:
    """Move foreign keys to where they belong; a foreign key beside the real one is a problem."""
    homes: list[tuple[KeyPath, dict[str, Any]]] = [((), draft.tree)]
    homes += [((s,), draft.tree[s]) for s in ALIAS_SECTIONS if isinstance(draft.tree.get(s), dict)]
    taken: dict[tuple[str, str], KeyPath] = {}
    for prefix, home in homes:
        for key in [k for k in home if k in ALIASES]:
            alias, path, value = ALIASES[key], (*prefix, key), home.pop(key)
            section, name = alias.target
            target = draft.tree.setdefault(section, {})
            if not isinstance(target, dict):
                continue  # the section itself is the problem, and is reported as one
            if name in target:
                other = ".".join(map(str, taken.get(alias.target, alias.target)))
                draft.report(path, f"is another name for {other}, which is set too; keep one of them")
                continue
            target[name], taken[alias.target] = value, path
            if path in draft.places:
                draft.places[alias.target] = draft.places[path]
            draft.notices.append(alias_notice(path, alias, value))


def later(path: KeyPath, value: Any) -> str | None:
    """Return the message for a section or value that a later release brings."""
    if len(path) == 1 and path[0] in LATER_SECTIONS:
        return "comes with a later release; remove the section"
    if isinstance(value, str) and value in LATER_VALUES.get((str(path[0]), str(path[-1])), ()):
        return f"{show(value)} comes with a later release"
    return None
