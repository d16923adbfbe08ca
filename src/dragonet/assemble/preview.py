"""What a run would do, without doing it: the resolved config, the objective, rendered prompts, time and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dragonet.assemble.build import describe
from dragonet.assemble.estimate import Estimate, estimate
from dragonet.assemble.prepare import Prepared, total_steps
from dragonet.config import resolved_yaml
from dragonet.data.preview import preview_prompts

SHOWN_PROMPTS = 3


@dataclass(frozen=True, slots=True)
class DryRun:
    """Everything `--dry-run` shows."""

    config: str
    objective: str
    prompts: str
    facts: dict[str, Any]
    cost: Estimate

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "config": self.config,
            "objective": self.objective,
            "prompts": self.prompts,
            **self.facts,
            "estimate": self.cost.to_json(),
        }

    def text(self) -> str:
        """Return the report as it is printed."""
        facts = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in self.facts.items())
        parts = (self.config.rstrip(), self.objective, self.prompts.rstrip(), facts, self.cost.text())
        heads = ("config", "objective", "prompts", "plan", "cost")
        return "\n\n".join(f"== {head}\n{part}" for head, part in zip(heads, parts, strict=True))


def dry_run_report(prepared: Prepared) -> DryRun:
    """Return what a run of this would do, and about what it would cost."""
    config = prepared.config
    steps = total_steps(config, len(prepared.train))
    facts = {"train_prompts": len(prepared.train), "held_out_prompts": len(prepared.held_out), "steps": steps}
    return DryRun(
        config=resolved_yaml(config),
        objective=describe(config),
        prompts=preview_text(prepared, SHOWN_PROMPTS),
        facts=facts,
        cost=estimate(prepared, steps),
    )


def preview_text(prepared: Prepared, n: int) -> str:
    """Return the first `n` training prompts as the model will see them."""
    return preview_prompts(prepared.train[:n], prepared.renderer, prepared.notices)


def preview_json(prepared: Prepared, n: int) -> dict[str, Any]:
    """Return the first `n` training prompts as text with special tokens, token ids and reference."""
    renderer = prepared.renderer
    rows = [
        {
            "index": prompt.index,
            "text": renderer.prompt_text(prompt.messages),
            "token_ids": renderer.prompt_ids(prompt.messages),
            "reference": prompt.reference,
        }
        for prompt in prepared.train[:n]
    ]
    return {"notices": list(prepared.notices), "prompts": rows}
