"""Settings that other trainers ship, for those whose files do not hold them where a runner can read them."""

from __future__ import annotations

from typing import Any

Settings = dict[str, Any]

# The numbers at the end of PureJaxRL's ppo.py, without the printing of episodes; and of its notebook.
PUREJAXRL: Settings = {
    "LR": 2.5e-4,
    "NUM_ENVS": 4,
    "NUM_STEPS": 128,
    "TOTAL_TIMESTEPS": 500_000,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ANNEAL_LR": True,
    "DEBUG": False,
}
PUREJAXRL_MINATAR: Settings = PUREJAXRL | {
    "LR": 5e-3,
    "NUM_ENVS": 64,
    "TOTAL_TIMESTEPS": 10_000_000,
    "NUM_MINIBATCHES": 8,
    "ACTIVATION": "relu",
}
# rl-baselines3-zoo; what begins with an underscore is not of the algorithm. `falls`: linearly, to zero.
ZOO: dict[str, Settings] = {
    "cartpole": {
        "_envs": 8,
        "_steps": 100_000,
        "n_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "n_epochs": 20,
        "ent_coef": 0.0,
        "learning_rate": {"falls": 1e-3},
        "clip_range": {"falls": 0.2},
    },
    "acrobot": {
        "_envs": 16,
        "_steps": 1_000_000,
        "_normalize": True,
        "n_steps": 256,
        "gae_lambda": 0.94,
        "gamma": 0.99,
        "n_epochs": 4,
        "ent_coef": 0.0,
    },
    "mountaincar": {
        "_envs": 16,
        "_steps": 1_000_000,
        "_normalize": True,
        "n_steps": 16,
        "gae_lambda": 0.98,
        "gamma": 0.99,
        "n_epochs": 4,
        "ent_coef": 0.0,
    },
    "pendulum": {"_envs": 1, "_steps": 20_000, "learning_rate": 1e-3},
}


def zoo_arguments(settings: Settings) -> tuple[Settings, Settings]:
    """(arguments of an algorithm of Stable-Baselines3, the others by name) of settings in `ZOO`."""
    arguments = {name: _schedule(x) for name, x in settings.items() if not name.startswith("_")}
    return arguments, {name[1:]: x for name, x in settings.items() if name.startswith("_")}


def _schedule(setting: Any) -> Any:
    """A number, or a function of the part of the steps that is left."""
    return (lambda left: setting["falls"] * left) if isinstance(setting, dict) else setting
