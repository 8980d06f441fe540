"""Environments of several agents that share one policy: each agent is a row of the batch."""

from __future__ import annotations

from jaxrl.envs.agents.multi_agent import MultiAgentEnv as MultiAgentEnv
from jaxrl.envs.agents.rows import AgentRows as AgentRows
