"""From rows to prompts: which column plays which role, and what a blank means for each.

A blank prompt is an error, a blank reference is None, a blank system is no system message. Column names that other
trainers use are recognised and said in a notice; two candidates for one role are an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dragonet.data.templates import Column, Template, constant, near_column, parse_template
from dragonet.errors import DataError, did_you_mean
from dragonet.types import Message, Prompt

__all__ = ["RoleMap", "map_roles", "recognise", "row_numbers"]

PROMPT_NAMES = ("prompt", "question", "problem", "messages", "instruction")
REFERENCE_NAMES = ("answer", "label", "solution", "reference", "ideal")
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class RoleMap:
    """The templates of the three roles. Of several for the prompt, the first whose columns are all filled is used."""

    prompt: tuple[Template, ...]
    reference: Template | None = None
    system: Template | None = None
    notices: tuple[str, ...] = ()


def recognise(
    columns: Sequence[str], prompt: str | None = None, reference: str | None = None, system: str | None = None
) -> RoleMap:
    """Read the three templates; a role left at None takes a column with a name that is known for it.

    A blank `reference` or `system` means none. Raises DataError for no or several candidates.
    """
    for role, text in (("prompt", prompt), ("reference", reference), ("system", system)):
        if text is not None and not isinstance(text, str):
            raise DataError(f"{role} must be a column name or a template, got {type(text).__name__}")
    taken: list[str] = []
    if prompt is None:
        prompts = _known_prompt(columns)
        taken.append("prompt <- " + " + ".join(prompts[0].columns))
    else:
        prompts = (_prompt_template(prompt, columns),)
    target = None
    if reference is None:
        used = {name for template in prompts for name in template.columns}
        name = _known_column([name for name in columns if name not in used], REFERENCE_NAMES, "reference")
        if name is not None:
            target = Template((Column(name),))
            taken.append(f"reference <- {name}")
    elif reference.strip():
        target = parse_template(reference, columns, "reference")
    notices = [", ".join(taken)] if taken else []
    constants, hint = _system_template(system, columns)
    return RoleMap(prompts, target, constants, (*notices, *hint))


def map_roles(rows: Sequence[dict[str, Any]], roles: RoleMap) -> tuple[tuple[Prompt, ...], tuple[str, ...]]:
    """Return one Prompt per row, and notices about blanks; raises DataError naming the rows whose prompt is blank."""
    texts = [_messages(row, roles.prompt, index) for index, row in enumerate(rows)]
    blank = [index for index, messages in enumerate(texts) if not messages]
    if blank:
        column = roles.prompt[-1].columns[0]
        raise DataError(
            f"the prompt is blank in {len(blank)} of {len(rows)} rows (rows {row_numbers(blank)}). "
            f"Fill them in or remove them; in Python: load_dataset([row for row in dataset.rows if {column!r} in row])"
        )
    references, notices = _references(rows, roles.reference)
    notices += _gaps(rows, roles.prompt)
    prompts = []
    for index, (row, messages, reference) in enumerate(zip(rows, texts, references, strict=True)):
        system = roles.system.render(row) if roles.system else ""
        if system:
            if any(message["role"] == "system" for message in messages):
                raise DataError(
                    f"row {index + 1} brings its own system message; leave `system` out, or remove it there"
                )
            messages = ({"role": "system", "content": system}, *messages)
        prompts.append(Prompt(messages, reference, row, index))
    return tuple(prompts), tuple(notices)


def row_numbers(indices: Sequence[int]) -> str:
    """Return the first few row numbers, counted from 1 as everywhere in messages, and that there are more."""
    return ", ".join(str(index + 1) for index in indices[:8]) + (", ..." if len(indices) > 8 else "")


def _known_prompt(columns: Sequence[str]) -> tuple[Template, ...]:
    name = _known_column(columns, PROMPT_NAMES, "prompt")
    if name is None:
        raise DataError(
            f"no column is known as a prompt ({', '.join(PROMPT_NAMES)}); this table has {', '.join(columns)}. "
            f"Choose one: map_prompts(prompt={columns[0]!r})"
        )
    more = next((column for column in columns if column.strip().lower() == "input"), None)
    alone = Template((Column(name),))
    if name.strip().lower() != "instruction" or more is None:
        return (alone,)
    return (Template((Column(name), "\n\n", Column(more))), alone)


def _known_column(columns: Sequence[str], known: Sequence[str], role: str) -> str | None:
    found = [column for column in columns if column.strip().lower() in known]
    if len(found) > 1:
        none = ", or none with reference=''" if role == "reference" else ""
        raise DataError(
            f"{len(found)} columns could be the {role}: {', '.join(found)}. "
            f"Choose one: map_prompts({role}={found[0]!r}){none}"
        )
    return found[0] if found else None


def _prompt_template(text: str, columns: Sequence[str]) -> Template:
    if not text.strip():
        raise DataError(f"prompt is blank; name a column: {', '.join(columns)}")
    template = parse_template(text, columns, "prompt")
    if not template.columns:
        raise DataError(
            f"prompt {text!r} names no column, so each row would ask the same; put one in single braces, such as "
            f"'{{{columns[0]}}}'"
        )
    return template


def _system_template(text: str | None, columns: Sequence[str]) -> tuple[Template | None, tuple[str, ...]]:
    if text is None or not text.strip():
        return None, ()
    if text in columns or "{" in text or "}" in text:
        return parse_template(text, columns, "system"), ()
    near = near_column(text, columns)
    hint = (f"system is the text {text!r} in each row; for the column write {near!r}",) if near else ()
    return constant(text), hint


def _messages(row: Mapping[str, Any], templates: Sequence[Template], index: int) -> tuple[Message, ...]:
    """Return the row's messages without the mapped system message; none for a blank prompt."""
    template = next((t for t in templates if all(name in row for name in t.columns)), templates[-1])
    value = row.get(template.column) if template.column is not None else None
    if isinstance(value, list | dict):
        return _chat(value, f"row {index + 1}, column {template.column!r}")
    text = template.render(row)
    return ({"role": "user", "content": text},) if text else ()


def _chat(value: list[Any] | dict[str, Any], where: str) -> tuple[Message, ...]:
    """Check a list of chat messages; it must leave the next turn to the model."""
    if isinstance(value, dict):
        raise DataError(f"{where}: expected text or a list of messages, got one mapping")
    messages = tuple(_message(item, f"{where}, message {position}") for position, item in enumerate(value))
    if not messages:
        return ()
    if messages[-1]["role"] == "assistant":
        raise DataError(
            f"{where}: the last message is the assistant's, but the model is to write it; remove it, and keep its "
            "text in a column of its own as the reference"
        )
    if not any(message["role"] == "user" for message in messages):
        raise DataError(f"{where}: no message has the role user")
    return messages


def _message(item: Any, where: str) -> Message:
    if not isinstance(item, dict):
        raise DataError(f"{where}: expected a mapping with role and content, got {type(item).__name__}")
    if "from" in item and "value" in item and "role" not in item:
        raise DataError(f"{where} has from and value; rename them to role and content, human to user, gpt to assistant")
    role, content = item.get("role"), item.get("content")
    if role not in ROLES:
        hint = did_you_mean(role, ROLES) if isinstance(role, str) else f"; known: {', '.join(ROLES)}"
        raise DataError(f"{where}: unknown role {role!r}{hint}")
    if content is None and item.get("tool_calls"):
        content = ""
    if not isinstance(content, str):
        raise DataError(f"{where}: content must be text, got {type(content).__name__}")
    extra = {key: value for key, value in item.items() if key not in ("role", "content") and value is not None}
    return {"role": role, "content": content, **extra}


def _references(rows: Sequence[Mapping[str, Any]], template: Template | None) -> tuple[list[str | None], list[str]]:
    if template is None:
        return [None] * len(rows), []
    texts = [template.render(row) for row in rows]
    filled = [text for text in texts if text]
    notices = []
    if template.column is not None and filled and all("####" in text for text in filled):
        texts = [text.rpartition("####")[2].strip() for text in texts]
        notices.append(f"reference: what follows #### in {template.column} is taken, the working before it is left out")
    references = [text or None for text in texts]
    blank = [index for index, reference in enumerate(references) if reference is None]
    if blank:
        notices.append(f"{len(blank)} of {len(rows)} rows have no reference (rows {row_numbers(blank)})")
    return references, notices


def _gaps(rows: Sequence[Mapping[str, Any]], templates: Sequence[Template]) -> list[str]:
    if len(templates) > 1:  # the second template is there for the gap
        return []
    notices = []
    for name in templates[0].columns:
        count = sum(name not in row for row in rows)
        if count:
            notices.append(f"column {name!r} is blank in {count} of {len(rows)} rows and leaves a gap in their prompts")
    return notices
