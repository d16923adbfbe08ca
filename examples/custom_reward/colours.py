"""The words the reward knows; imported by reward.py, so it travels with the run."""

COLOURS = ("red", "green", "blue")
