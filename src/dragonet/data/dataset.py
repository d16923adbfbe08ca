"""The table a run starts from, and what becomes of it: `Dataset`, which nothing changes in place.

Holds cleaned rows and, once mapped, prompts. Refuses to know where rows came from (load.py, files.py, memory.py) and
how a prompt is tokenized; `preview` asks the model's own renderer for that, and loads it only then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dragonet.data.mapping import map_roles, recognise
from dragonet.data.preview import PreviewRenderer, preview_prompts
from dragonet.data.split import Split, split_prompts
from dragonet.errors import DataError
from dragonet.types import Prompt

__all__ = ["Dataset"]


@dataclass(frozen=True, slots=True, repr=False)
class Dataset:
    """Rows with their columns, and the prompts they were mapped to. Made by `load_dataset`.

    `rows` holds every column of each row with its loaded value; blank cells are absent keys. `source` reads as the
    argument of `load_dataset`; `mapping` holds the templates given to `map_prompts`, None before that.
    """

    source: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    load_notices: tuple[str, ...] = ()
    mapping: tuple[tuple[str, str], ...] | None = None
    mapped: tuple[Prompt, ...] = ()
    map_notices: tuple[str, ...] = ()

    @property
    def notices(self) -> tuple[str, ...]:
        """What was decided on the way: columns taken, repeated rows, blanks."""
        return self.load_notices + self.map_notices

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        text = f"load_dataset({self.source})"
        if self.mapping is not None:
            text += f".map_prompts({', '.join(f'{role}={value!r}' for role, value in self.mapping)})"
        return f"{text}  # {len(self.rows)} rows: {', '.join(self.columns)}"

    def map_prompts(
        self, prompt: str | None = None, reference: str | None = None, system: str | None = None
    ) -> Dataset:
        """Return the dataset with its prompts: each role is a column name, or text with `{column}`.

        A prompt or reference left at None is taken from a column whose name is known (see `notices`). `system` may be
        plain text; a blank `system` or `reference` means none. Raises DataError.
        """
        roles = recognise(self.columns, prompt, reference, system)
        prompts, notices = map_roles(self.rows, roles)
        given = (("prompt", prompt), ("reference", reference), ("system", system))
        mapping = tuple((role, value) for role, value in given if value is not None)
        return replace(self, mapping=mapping, mapped=prompts, map_notices=roles.notices + notices)

    def prompts(self) -> list[Prompt]:
        """Return one Prompt per row, in order; an unmapped dataset is mapped by its column names."""
        return list(self._ready().mapped)

    def split(self, eval: float = 0.1, min_eval: int = 16, max_eval: int = 200, seed: int = 42) -> Split:
        """Hold out the share `eval` of the rows (between `min_eval` and `max_eval`), equal prompts on one side.

        The notices of an unmapped dataset's mapping stand among those of the split.
        """
        ready = self._ready()
        split = split_prompts(ready.mapped, eval, min_eval, max_eval, seed)
        return split if ready is self else replace(split, notices=ready.map_notices + split.notices)

    def preview(self, model: str | PreviewRenderer = "smollm2-135m-instruct", n: int = 3) -> str:
        """Return the first `n` prompts exactly as `model` will see them, special tokens marked."""
        if n < 1:
            raise DataError(f"a preview shows at least one prompt, got n={n}")
        ready = self._ready()
        return preview_prompts(ready.mapped[:n], model, ready.notices)

    def _ready(self) -> Dataset:
        return self if self.mapping is not None else self.map_prompts()
