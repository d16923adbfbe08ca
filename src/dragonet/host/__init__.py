"""User code in worker processes: load a file, call it with a deadline, capture what it prints.

load.py reads and loads a user's file, pool.py makes calls that can be killed, process.py is one worker seen from its
parent, worker.py is the same worker from inside, frames.py the format between them, bounded.py text matching with a
time limit. Nothing here knows what a reward is, and nothing loads torch.
"""
