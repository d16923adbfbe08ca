"""Train the bundled model on two-digit additions from Python; the same run as arithmetic.yaml."""

import sys

import dragonet

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 24
table = dragonet.load_dataset("bundled:additions")
prompts = table.map_prompts(prompt="question", reference="answer", system="Answer with the number only.")
run = dragonet.reinforce(
    prompts,
    model="smollm2-135m-instruct",
    rewards=[dragonet.reward("numeric"), dragonet.reward("length", max_chars=4, weight=0.2)],
    reinforce={"group_size": 8, "max_new_tokens": 16, "beta": 0.0},
    train={"learning_rate": 2e-4, "batch_size": 8, "max_steps": steps, "warmup": 0.2, "schedule": "constant"},
    name="arithmetic",
)
print(run, run.status().state, run.report()["reward"])
