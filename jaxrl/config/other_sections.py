"""Sections, keys and values of other trainers' config files, with ours."""

from __future__ import annotations

from typing import Any

LEARNER = "learner."  # begins the fields of the algorithm, whichever it is
# Each section of theirs, with those of ours in which a key of the same name is looked for; "" are fields
# without a section.
SECTIONS = {
    "model": ("network",),
    "environment": ("env", "host"),
    "training": ("learner", "", "stop"),
    "algorithm": ("learner",),
    "tpu": (),
    "hardware": (),
    "parallel": ("host",),
    "logging": ("log",),
    "evaluation": (),
    "checkpointing": (),
}
NETWORK_KINDS = ("architecture", "model-type", "name", "policy", "type")
_DEVICES = {
    "mixed-precision": "network.compute_dtype",
    "bf16": "network.compute_dtype",
    "bfloat16": "network.compute_dtype",
    "dtype": "network.compute_dtype",
    "use-bf16": "network.compute_dtype",
    "use-bfloat16": "network.compute_dtype",
}
_LEARNER_KEYS = {
    "anneal-lr": "learner.schedule",
    "buffer-size": "learner.capacity",
    "clip-epsilon": "learner.clip_range",
    "clip-param": "learner.clip_range",
    "discount": "learner.gamma",
    "discount-factor": "learner.gamma",
    "entropy-coefficient": "learner.entropy_coef",
    "exploration-final-eps": "learner.exploration_end",
    "exploration-initial-eps": "learner.exploration_start",
    "gradient-steps": "learner.updates_per_rollout",
    "gae-lam": "learner.gae_lambda",
    "horizon": "learner.rollout_length",
    "lr-scheduler": "learner.schedule",
    "mixed-precision": "network.compute_dtype",
    "max-gradient-norm": "learner.max_grad_norm",
    "num-timesteps": "stop.steps",
    "n-timesteps": "stop.steps",
    "ppo-epochs": "learner.num_epochs",
    "rollout-steps": "learner.rollout_length",
    "steps-per-rollout": "learner.rollout_length",
    "train-freq": "learner.rollout_length",
    "tau": "learner.target_rate",
    "total-steps": "stop.steps",
    "value-coefficient": "learner.value_coef",
    "value-loss-coef": "learner.value_coef",
}
KEYS: dict[str, dict[str, str]] = {
    "model": {
        "recurrent": "network.core",
        "recurrent-type": "network.core",
        "rnn-type": "network.core",
        "use-lstm": "network.core",
        "lstm-hidden-dim": "network.core_size",
        "lstm-layers": "network.core_layers",
        "lstm-units": "network.core_size",
        "hidden-layers": "network.hidden_sizes",
        "dtype": "network.compute_dtype",
        "mixed-precision": "network.compute_dtype",
        "use-layer-norm": "network.layer_norm",
    },
    "environment": {
        "id": "env.name",
        "normalize-obs": "normalize.observations",
        "normalize-observations": "normalize.observations",
        "normalize-reward": "normalize.rewards",
        "normalize-rewards": "normalize.rewards",
        "seed": "seed",
    },
    "training": _LEARNER_KEYS,
    "algorithm": {**_LEARNER_KEYS, "name": "algorithm", "type": "algorithm"},
    "tpu": _DEVICES,
    "hardware": _DEVICES,
    "parallel": {"num-envs": "env.num_envs"},
    "logging": {
        "run-name": "log.name",
        "name": "log.name",
        "log-freq": "log.every_steps",
        "eval-interval": "evaluate.every_steps",
        "s3-bucket": "",
    },
    "evaluation": {
        "deterministic": "evaluate.modes",
        "episodes": "evaluate.episodes",
        "freq": "evaluate.every_steps",
        "frequency": "evaluate.every_steps",
        "interval": "evaluate.every_steps",
        "num-episodes": "evaluate.episodes",
    },
    "checkpointing": {
        "freq": "checkpoint.every_steps",
        "frequency": "checkpoint.every_steps",
        "interval": "checkpoint.every_steps",
        "keep": "checkpoint.keep",
        "keep-last": "checkpoint.keep",
        "max-to-keep": "checkpoint.keep",
    },
}
# Numbers that become counts by a rule of `converted_counts`, by the word for each there.
SIZES = {
    "batch-size": "batch",
    "minibatch-size": "minibatch",
    "mini-batch-size": "minibatch",
    "sgd-minibatch-size": "minibatch",
    "train-batch-size": "rollout",
    "accumulation-steps": "accumulation",
    "grad-accumulation-steps": "accumulation",
    "gradient-accumulation": "accumulation",
    "gradient-accumulation-steps": "accumulation",
    "envs-per-worker": "envs_per_worker",
    "num-envs-per-worker": "envs_per_worker",
    "num-devices": "devices",
    "num-gpus": "devices",
    "num-tpu-cores": "devices",
    "tpu-cores": "devices",
    "target-update-interval": "target_interval",
}
SIZES_OF_SECTIONS = {
    "model": {"num-layers": "layers"},
    "tpu": {"cores": "devices", "num-cores": "devices"},
    "hardware": {"num-cores": "devices"},
}
WRITERS = ("tensorboard", "wandb", "mlflow", "neptune", "csv")
# Their values of fields that take names.
VALUES: dict[str, dict[Any, Any]] = {
    "network.core": {True: "lstm", False: "none", "mlp": "none", "feedforward": "none", "cnn": "none"},
    "network.compute_dtype": {True: "bfloat16", False: "float32", "bf16": "bfloat16", "fp32": "float32"},
    "learner.schedule": {True: "linear", False: "constant"},
    "evaluate.modes": {True: ["greedy"], False: ["sampled"]},
}
WITHOUT_MEMORY = ("mlp", "cnn", "feedforward")
CORES = ("lstm", "gru", "mingru", "lru", "s5", "gated_delta", "gtrxl")
RECURRENT = {"ppo-lstm": "ppo", "recurrent-ppo": "ppo", "ppo-recurrent": "ppo", "recurrentppo": "ppo"}
