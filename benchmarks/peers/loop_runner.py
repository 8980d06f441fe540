"""A synchronous loop in PyTorch, written the way CleanRL writes PPO: step, act, step; then the epochs."""

from __future__ import annotations

import outcome  # isort: skip

import time
from typing import Any

import envpool_work
import numpy as np
import torch
from host_networks import trunk
from torch import nn

IMPORTED = outcome.since_start()


class Agent(nn.Module):
    """Policy and value of one work; with an LSTM it goes through time step by step, reset at starts."""

    def __init__(self, network: str, shape: tuple[int, ...], num_actions: int) -> None:
        super().__init__()
        self.network = network
        self.is_recurrent = network == "impala-lstm"
        if network == "mlp":
            self.policy, self.critic = _mlp(shape[0], num_actions), _mlp(shape[0], 1)
            return
        self.trunk, width = trunk(network, shape)
        if self.is_recurrent:
            self.lstm = nn.LSTM(width, width)
        self.policy, self.critic = nn.Linear(width, num_actions), nn.Linear(width, 1)

    def forward(self, obs: torch.Tensor, state: Any, done: torch.Tensor) -> tuple[Any, torch.Tensor, Any]:
        """obs [T, N, ...], done [T, N]: logits and values [T * N, ...], and the LSTM's state."""
        flat = obs.flatten(0, 1)
        if self.network == "mlp":
            return self.policy(flat), self.critic(flat).flatten(), state
        x = self.trunk(flat)
        if self.is_recurrent:
            steps = []
            for features, ended in zip(x.unflatten(0, obs.shape[:2]), done, strict=True):
                keep = (1.0 - ended)[None, :, None]
                y, state = self.lstm(features[None], (keep * state[0], keep * state[1]))
                steps.append(y)
            x = torch.cat(steps).flatten(0, 1)
        return self.policy(x), self.critic(x).flatten(), state


def _mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))
    )


class Loop:
    """One run: `iterate` does a rollout and its updates."""

    def __init__(self, work: dict[str, Any], seed: int) -> None:
        torch.manual_seed(seed)
        self.work = work
        self.envs = envpool_work.make(work, seed)
        self.obs = self.envs.reset()[0]
        self.n, self.length = work["num_envs"], work["rollout_length"]
        shape, actions = self.obs.shape[1:], int(self.envs.action_space.n)
        self.agent = Agent(work["network"], shape, actions)
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=2.5e-4, eps=1e-5)
        self.done = torch.zeros(self.n)
        self.state = tuple(torch.zeros(1, self.n, 256) for _ in range(2))

    def iterate(self) -> None:
        started = self.state
        rows: list[tuple[torch.Tensor, ...]] = []
        for _ in range(self.length):
            obs = torch.from_numpy(np.array(self.obs))
            with torch.no_grad():
                logits, value, self.state = self.agent(obs[None], self.state, self.done[None])
                distribution = torch.distributions.Categorical(logits=logits)
                action = distribution.sample()
            log_prob = distribution.log_prob(action)
            self.obs, reward, terminated, truncated, _ = self.envs.step(action.numpy().astype(np.int32))
            rows.append((obs, action, log_prob, value, torch.from_numpy(np.float32(reward)), self.done))
            self.done = torch.from_numpy(np.float32(terminated | truncated))
        obs, action, log_prob, value, reward, done = (torch.stack(x) for x in zip(*rows, strict=True))
        with torch.no_grad():
            last = self.agent(torch.from_numpy(np.array(self.obs))[None], self.state, self.done[None])[1]
        advantage = _gae(reward, value, torch.cat([done[1:], self.done[None]]), last)
        self._learn(obs, action, log_prob, advantage, advantage + value, done, started)

    def _learn(
        self, obs: Any, action: Any, log_prob: Any, advantage: Any, target: Any, done: Any, started: Any
    ) -> None:
        minibatches = self.work["num_minibatches"]
        for _ in range(self.work["epochs"]):
            if self.agent.is_recurrent:  # whole environments
                for part in torch.randperm(self.n).chunk(minibatches):
                    state = tuple(x[:, part] for x in started)
                    pick = [x[:, part] for x in (obs, done, action, log_prob, advantage, target)]
                    self._update(*pick, state)
                continue
            flat = [x.flatten(0, 1) for x in (obs, done, action, log_prob, advantage, target)]
            for part in torch.randperm(self.n * self.length).chunk(minibatches):
                self._update(*(x[part][None] for x in flat), None)

    def _update(
        self, obs: Any, done: Any, action: Any, old: Any, advantage: Any, target: Any, state: Any
    ) -> None:
        logits, value, _ = self.agent(obs, state, done)
        distribution = torch.distributions.Categorical(logits=logits)
        advantage = advantage.flatten()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = (distribution.log_prob(action.flatten()) - old.flatten()).exp()
        policy = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        loss = (
            policy + 0.25 * (value - target.flatten()).square().mean() - 0.01 * distribution.entropy().mean()
        )
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), 0.5)
        self.optimizer.step()


def _gae(reward: torch.Tensor, value: torch.Tensor, ended: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    advantage, running = torch.zeros_like(reward), torch.zeros(reward.shape[1])
    following = torch.cat([value[1:], last[None]])
    for t in reversed(range(len(reward))):
        delta = reward[t] + 0.99 * following[t] * (1 - ended[t]) - value[t]
        advantage[t] = running = delta + 0.99 * 0.95 * (1 - ended[t]) * running
    return advantage


def main(task: dict[str, Any]) -> None:
    work = task["work"]
    loop = Loop(work, task["seed"])
    loop.iterate()
    start = time.perf_counter()
    for _ in range(work["iterations"]):
        loop.iterate()
    outcome.report(
        import_seconds=IMPORTED,
        steps=work["iterations"] * work["num_envs"] * work["rollout_length"],
        seconds=time.perf_counter() - start,
        parameters=sum(x.numel() for x in loop.agent.parameters()),
        versions=outcome.versions("torch", "envpool", "numpy"),
    )


if __name__ == "__main__":
    main(outcome.task())
