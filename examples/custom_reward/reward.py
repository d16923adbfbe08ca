"""A reward of one's own: pay for answers that repeat the colour that was asked for, and no other colour."""

from colours import COLOURS


def reward(completion, reference):
    words = completion.lower().split()
    named = [colour for colour in COLOURS if colour in words]
    if not named:
        return 0.0
    return words.count(reference) / len(named)
