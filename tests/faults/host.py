"""`tiny.py` on environments in worker processes.

Command:  python -m jaxrl.main --config=tests/faults/host.py
Hardware: 1 CPU core
Minutes:  0.1 to 0.2
Expected: nothing learnt
"""

from ml_collections import ConfigDict

from tests.faults import tiny


def get_config() -> ConfigDict:
    c = tiny.get_config()
    c.env.name = "gymnasium:CartPole-v1"
    c.host.num_workers = 2
    c.stop.steps = 2000 * tiny.STEPS
    return c
