"""The words of other trainers for what has another name here, with the answer to each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from jaxrl.config.built_in import BUILT_IN
from jaxrl.config.errors import did_you_mean

# Words as `normalized` gives them: SB3, CleanRL, PufferLib, Stoix, RLlib, PureJaxRL.
_FIELDS = {
    "activation-fn": "network.activation",
    "anneal-lr": "ppo.schedule",
    "algo": "algorithm",
    "allow-tf32": "network.matmul_precision",
    "attention-memory-inference": "network.memory_length",
    "attention-num-heads": "network.core_heads",
    "batch-size": "ppo.num_minibatches",
    "bptt-horizon": "ppo.sequence_length",
    "checkpoint-freq": "checkpoint.every_steps",
    "checkpoint-interval": "checkpoint.every_steps",
    "clip-coef": "ppo.clip_range",
    "clip-eps": "ppo.clip_range",
    "clip-vloss": "ppo.clip_value",
    "decay-learning-rates": "ppo.schedule",
    "ent-coef": "ppo.entropy_coef",
    "entropy-coeff": "ppo.entropy_coef",
    "env-id": "env.name",
    "env-name": "env.name",
    "environment": "env.name",
    "epochs": "ppo.num_epochs",
    "eval-episodes": "evaluate.episodes",
    "eval-freq": "evaluate.every_steps",
    "eval-interval": "evaluate.every_steps",
    "exp-name": "log.name",
    "experiment-name": "log.name",
    "float32-matmul-precision": "network.matmul_precision",
    "grad-clip": "ppo.max_grad_norm",
    "hidden-dim": "network.hidden_sizes",
    "hidden-size": "network.hidden_sizes",
    "lam": "ppo.gae_lambda",
    "lambda": "ppo.gae_lambda",
    "learning-rate": "ppo.learning_rate",
    "log-interval": "log.every_steps",
    "lr": "ppo.learning_rate",
    "lr-schedule": "ppo.schedule",
    "lstm-hidden-size": "network.core_size",
    "lstm-size": "network.core_size",
    "minibatch-size": "ppo.num_minibatches",
    "mixed-precision": "network.compute_dtype",
    "n-envs": "env.num_envs",
    "n-epochs": "ppo.num_epochs",
    "n-lstm-layers": "network.core_layers",
    "n-steps": "ppo.rollout_length",
    "net-arch": "network.hidden_sizes",
    "norm-adv": "ppo.normalize_advantages",
    "norm-obs": "normalize.observations",
    "norm-reward": "normalize.rewards",
    "normalize-advantage": "ppo.normalize_advantages",
    "num-devices": "num_devices",
    "num-env-steps": "stop.steps",
    "num-envs-per-worker": "env.num_envs",
    "num-gpus": "num_devices",
    "num-minibatches": "ppo.num_minibatches",
    "num-sgd-iter": "ppo.num_epochs",
    "num-steps": "ppo.rollout_length",
    "precision": "network.compute_dtype",
    "rnn-hidden-size": "network.core_size",
    "rollout-fragment-length": "ppo.rollout_length",
    "s3-bucket": "storage.sync_to",
    "s3-sync-freq": "storage.sync_every_steps",
    "save-freq": "checkpoint.every_steps",
    "save-interval": "checkpoint.every_steps",
    "sample": "evaluate.modes",
    "sgd-minibatch-size": "ppo.num_minibatches",
    "total-num-envs": "env.num_envs",
    "total-timesteps": "stop.steps",
    "tpu-cores": "num_devices",
    "train-batch-size": "ppo.rollout_length",
    "update-epochs": "ppo.num_epochs",
    "vf-clip-param": "ppo.clip_value",
    "vf-coef": "ppo.value_coef",
    "vf-loss-coeff": "ppo.value_coef",
    "wandb-project": "log.project",
    "wandb-project-name": "log.project",
}
# What a field counts or takes, if that is something else than the word does.
_NOTES = {
    "num-envs-per-worker": ", over all workers: so many times their number",
    "batch-size": ", a count: environments x rollout_length / batch size",
    "minibatch-size": ", a count: environments x rollout_length / minibatch size",
    "sgd-minibatch-size": ", a count: environments x rollout_length / minibatch size",
    "train-batch-size": ", the batch divided by the environments",
    "allow-tf32": ": float32 or tensorfloat32",
    "anneal-lr": ": linear or constant",
    "float32-matmul-precision": ": float32 or tensorfloat32",
    "mixed-precision": ": bfloat16",
    "sample": ": greedy, sampled or both",
}
_FLAGS = {
    "capture-video": "`--video=FILE` of jaxrl evaluate",
    "checkpoint": "`--checkpoint=STEP` of jaxrl evaluate and export, `--resume=DIR` of jaxrl train",
    "cuda": "`JAX_PLATFORMS`, an environment variable: cpu, cuda or tpu",
    "deterministic": "`--greedy` of jaxrl evaluate, `--config.evaluate.modes=greedy` of a run",
    "detect-anomaly": "`--debug`, which names the operation that made a NaN",
    "device": "`JAX_PLATFORMS`, an environment variable: cpu, cuda or tpu",
    "distributed": "jaxrl launch, or `--coordinator`, `--num_processes` and `--process_id`",
    "dist-url": "`--coordinator=HOST:PORT`",
    "local-rank": "`--process_id=I`",
    "log-dir": "`--workdir=DIR`",
    "logdir": "`--workdir=DIR`",
    "model": "`--workdir=DIR` of a run folder",
    "n-trials": "`--trials=N` of jaxrl search",
    "no-cuda": "`JAX_PLATFORMS`, an environment variable: cpu, cuda or tpu",
    "num-episodes": "`--episodes=N` of jaxrl evaluate, `--config.evaluate.episodes=N` of a run",
    "num-trials": "`--trials=N` of jaxrl search",
    "optimizer": "every algorithm has Adam, with its field learning_rate; jaxrl search has `--method=optuna`",
    "output": "`--workdir=DIR`",
    "profile": "`--config.profile.steps=N`, which traces N steps for jaxrl profile-summary",
    "pruning": "`--pruner=P` of jaxrl search --method=optuna",
    "refresh-interval": "`--interval=S` of jaxrl watch",
    "render": "`--video=FILE` of jaxrl evaluate",
    "save-dir": "`--workdir=DIR`",
    "save-path": "`--workdir=DIR`",
    "search-space": "`--space=FILE` of jaxrl search",
    "tensorboard-log": "`--workdir=DIR`, in which tensorboard/ is",
    "track": "`--config.log.writers=tensorboard,jsonl,wandb`",
    "verbose": "rows come every `--config.log.every_steps=N`",
    "wandb": "`--config.log.writers=tensorboard,jsonl,wandb`",
    "world-size": "`--num_processes=N`",
}
# Words for flags that some commands have under another name.
_OTHER_FLAGS = {"checkpoint": "step", "env": "environment", "env-id": "environment", "optimizer": "method"}
_METRICS = {
    "ep-rew-mean": "episode/return",
    "episode-return": "episode/return",
    "episode-reward-mean": "episode/return",
    "episodic-return": "episode/return",
    "eval-return": "eval/return",
    "fps": "time/steps_per_second",
    "mean-reward": "eval/return",
    "reward": "eval/return",
    "sps": "time/steps_per_second",
}


def normalize_word(word: str) -> str:
    """`total-timesteps` of `train.total_timesteps` or `TOTAL_TIMESTEPS`."""
    return word.rpartition(".")[2].rpartition("/")[2].replace("_", "-").lower()


def field_of(word: str) -> str:
    """The field that takes the value of another trainer's word as it is; "" if there is none."""
    key = normalize_word(word)
    return "" if key in _NOTES else _FIELDS.get(key, "")


def field_hint(word: str, section: str = "ppo", declared: Collection[str] = ()) -> str:
    """Ends an error about a field that does not exist; "" if the word is not known.

    Args:
      word: another trainer's.
      section: of the run's algorithm, whose field is named if there is one.
      declared: the names of all fields.
    """
    key = normalize_word(word)
    if key not in _FIELDS:
        return ""
    own = _FIELDS[key].replace("ppo.", f"{section}.", 1)
    return f"; here it is `{own if own in declared else _FIELDS[key]}`{_NOTES.get(key, '')}"


def unknown_field_hint(name: str, declared: Collection[str], section: str, prefix: str = "") -> str:
    """Ends an error about the unknown field `name`.

    Several algorithms have fields of one name. So a field of the run's own section comes first if it has the
    name's last part, then the words of other trainers, then the nearest field that the run reads. The section
    that `name` begins with is looked at too, whether or not it is the run's.

    Args:
      name: dotted.
      declared: the names of all fields.
      section: that of the run's algorithm.
      prefix: put before the field that is shown.
    """
    given, _, last = name.rpartition(".")
    if f"{section}.{last}" in declared:
        return f"; did you mean `{prefix}{section}.{last}`?"
    others = BUILT_IN.keys() - {section, given}
    read = [field for field in declared if field.partition(".")[0] not in others]
    return field_hint(name, section, declared) or did_you_mean(name, read, prefix=prefix)


def flag_hint(word: str, fields: Iterable[str] = (), flags: Mapping[str, str] | None = None) -> str:
    """Ends an error about a flag that does not exist; "" if the word is not known.

    Args:
      word: without its dashes.
      fields: the names of all fields; the last part of one is a known word too.
      flags: the flags of fields that have one, by field.
    """
    key = normalize_word(word)
    if key in _FLAGS:
        answer = _FLAGS[key]
        return f"; here it is {answer}" if answer.startswith("`") else f"; {answer}"
    own = [field for field in fields if normalize_word(field) == key]
    # A word with a note means something else elsewhere, whatever fields of that name there are.
    field = own[0] if own and key not in _NOTES else _FIELDS.get(key, "")
    if not field:
        return ""
    return f"; here it is `{(flags or {}).get(field, f'--config.{field}=VALUE')}`{_NOTES.get(key, '')}"


def other_flag(word: str, flags: Collection[str]) -> str:
    """The one of a command's flags that does what another's `word` does; "" if there is none.

    Args:
      word: without its dashes.
      flags: of the command, without theirs.
    """
    key = normalize_word(word)
    if _OTHER_FLAGS.get(key) in flags:
        return _OTHER_FLAGS[key]
    longer = [flag for flag in flags if flag.startswith(f"{key}-")]
    return longer[0] if len(longer) == 1 else ""


def metric_hint(word: str) -> str:
    """Ends an error about a metric that does not exist; "" if the word is not known."""
    key = normalize_word(word)
    return f"; here it is `{_METRICS[key]}`" if key in _METRICS else ""
