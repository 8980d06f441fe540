"""PPO plays tic-tac-toe against itself and its past, until no opponent beats it.

Command:  jaxrl train ppo_tictactoe
Others:   --env=pgx:connect_four --config.stop.steps=1e7, and other two-player games (docs/selfplay.md)
Hardware: 2 CPU cores
Minutes:  1 to 2
Expected: 0 to 15% of games lost to perfect play, by seed, none with seed 0 (docs/selfplay.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "jaxrl:TicTacToe"  # evaluated against random moves
    c.evaluate.unseen = 'jaxrl:TicTacToe(opponent="minimax")'
    c.env.num_envs = 256
    c.selfplay.enabled = True
    c.network.update(encoder="mlp", core="none", hidden_sizes=(128, 128))
    c.ppo.update(rollout_length=32, num_epochs=4, num_minibatches=8, learning_rate=1e-3, gamma=1.0)
    c.ppo.gae_lambda = 0.9
    # With 0.02 both sides settle on a few lines, and lose where another opponent leaves them.
    c.ppo.entropy_coef = 0.1
    c.stop.steps = 3_000_000
    c.evaluate.update(every_steps=500_000, episodes=400)
    c.checkpoint.every_steps = 1_000_000
    return c
