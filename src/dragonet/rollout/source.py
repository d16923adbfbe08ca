"""Single-turn rounds: consecutive prompts of a shuffle that is made anew each epoch, answered by an engine.

Which prompts a round gets depends on the seed and the round's number alone, through hashes: no generator is stored and
nothing drifts over a kill. A batch runs over the end of an epoch into the next. Knows no rewards and no weights.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from dragonet.errors import DataError, RunError
from dragonet.protocols import RolloutEngine
from dragonet.rollout.collect import SeedPlan, collect_groups_sync
from dragonet.rollout.lengths import PromptRenderer
from dragonet.types import Group, Prompt, Sampling


class SingleTurnSource:
    """Answer `batch_size` prompts a round, `group_size` times each.

    A state remembers how many prompts were used before a round, so that a run can go on with another batch size.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        *,
        engine: RolloutEngine,
        renderer: PromptRenderer,
        sampling: Sampling,
        group_size: int,
        batch_size: int,
        seed: int,
    ) -> None:
        if not prompts:
            raise DataError(
                "there are no prompts to train on; give data.source at least one row beside the held-out ones"
            )
        self._prompts, self._engine, self._renderer = list(prompts), engine, renderer
        self._sampling, self._group_size, self._batch_size, self._seed = sampling, group_size, batch_size, seed
        self._next = 0  # the round after the last one given
        self._anchor = (0, 0)  # a round, and how many prompts were used before it
        self._orders: dict[int, list[int]] = {}

    @property
    def rounds_per_epoch(self) -> float:
        """How many rounds go through every prompt once; a fraction where the batch does not divide their number."""
        return len(self._prompts) / self._batch_size

    def epoch_of(self, round: int) -> int:
        """Return the epoch, from 0, of a round's first prompt."""
        return self._used_before(round) // len(self._prompts)

    def prompts_of(self, round: int) -> tuple[list[Prompt], tuple[int, ...]]:
        """Return a round's prompts, and for each how often its row has occurred in this round before."""
        first = self._used_before(round)
        picked = [self._prompt(place) for place in range(first, first + self._batch_size)]
        seen: Counter[int] = Counter()
        attempts = []
        for prompt in picked:
            attempts.append(seen[prompt.index])
            seen[prompt.index] += 1
        return picked, tuple(attempts)

    def next(self, round: int) -> list[Group]:
        """Sample the groups of a round. Raises RolloutError when the engine fails."""
        prompts, attempts = self.prompts_of(round)
        groups = collect_groups_sync(
            self._engine,
            self._renderer,
            prompts,
            sampling=self._sampling,
            group_size=self._group_size,
            seeds=SeedPlan(self._seed, round, attempts),
        )
        self._next = round + 1
        return groups

    def state(self) -> dict[str, Any]:
        """Return where the next round begins, in plain JSON values."""
        used = self._used_before(self._next)
        return {"round": self._next, "used": used, "seed": self._seed, "prompts": self._fingerprint}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue after a saved round. Raises RunError when the state belongs to other prompts or another seed."""
        if state["seed"] != self._seed:
            raise RunError(
                f"the saved place in the data was reached with seed {state['seed']}, this run has {self._seed}; "
                f"resume with train.seed={state['seed']}, or start a new run"
            )
        if state["prompts"] != self._fingerprint:
            raise RunError(
                "the saved place in the data belongs to other prompts than those of this run; resume with the data it "
                "was started on, or start a new run"
            )
        self._next = int(state["round"])
        self._anchor = (self._next, int(state["used"]))

    def _used_before(self, round: int) -> int:
        start, used = self._anchor
        return used + (round - start) * self._batch_size

    def _prompt(self, place: int) -> Prompt:
        epoch, offset = divmod(place, len(self._prompts))
        if epoch not in self._orders:
            self._orders = {e: order for e, order in self._orders.items() if e == epoch - 1}
            self._orders[epoch] = shuffled(len(self._prompts), self._seed, epoch)
        return self._prompts[self._orders[epoch][offset]]

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for prompt in self._prompts:
            digest.update(repr((prompt.index, [(m.get("role"), m.get("content")) for m in prompt.messages])).encode())
        return f"{len(self._prompts)}:{digest.hexdigest()}"


def shuffled(n: int, seed: int, epoch: int) -> list[int]:
    """Return the numbers below n in the order of their hashes with seed and epoch; the same on every machine."""

    def key(i: int) -> bytes:
        return hashlib.blake2b(f"{seed}/{epoch}/{i}".encode(), digest_size=16).digest()

    return sorted(range(n), key=key)
