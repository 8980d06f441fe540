"""Learning from experience: what algorithms share, and a module or a package for each."""

from jaxrl.algorithms.actor_critic import ActorCritic, AuxiliaryLoss
from jaxrl.algorithms.agent import Agent
from jaxrl.algorithms.base import OF_ACTOR_CRITICS, OF_MINIBATCHES, Algorithm, Learned, read_hyperparams
from jaxrl.algorithms.minibatch_algorithm import MinibatchAlgorithm, Prepared
from jaxrl.algorithms.q_values import QAgent
from jaxrl.algorithms.registry import build, build_agent, hyperparameters
from jaxrl.algorithms.rollout_state import RolloutState
from jaxrl.algorithms.sequences import Batch

__all__ = [
    "OF_ACTOR_CRITICS",
    "OF_MINIBATCHES",
    "ActorCritic",
    "Agent",
    "Algorithm",
    "AuxiliaryLoss",
    "Batch",
    "Learned",
    "MinibatchAlgorithm",
    "Prepared",
    "QAgent",
    "RolloutState",
    "build",
    "build_agent",
    "hyperparameters",
    "read_hyperparams",
]
