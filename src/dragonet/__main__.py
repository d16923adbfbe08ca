"""Let `python -m dragonet` do what the `dragonet` command does."""

from dragonet.cli import main

if __name__ == "__main__":
    main()
