"""Deep Q-network."""
