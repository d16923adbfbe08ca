"""The bundled task set: additions of numbers from 2 to 49, each unordered pair once.

a + b and b + a never both exist, so that they cannot stand on both sides of a split and a held-out sum is one that
was never trained on. Order and orientation come from hashes, not from a random generator, so every machine writes the
same bytes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["additions_csv", "write_table"]

LOW, HIGH, SEED = 2, 49, 1


def additions_csv() -> str:
    """Return the table: question, answer, a, b; one row for each of the 1176 pairs."""
    pairs = [(a, b) for a in range(LOW, HIGH + 1) for b in range(a, HIGH + 1)]
    drawn = sorted((hashlib.blake2b(f"{SEED}/{a}/{b}".encode(), digest_size=8).digest(), a, b) for a, b in pairs)
    lines = ["question,answer,a,b"]
    for digest, a, b in drawn:
        first, second = (b, a) if digest[-1] & 1 else (a, b)
        lines.append(f"What is {first} + {second}?,{a + b},{first},{second}")
    return "\n".join(lines) + "\n"


def write_table(path: Path = Path(__file__).parent / "tables" / "additions.csv") -> None:
    """Write the table where `load_dataset("bundled:additions")` finds it."""
    path.write_bytes(additions_csv().encode())


if __name__ == "__main__":
    write_table()
