"""The game in a terminal, its recordings, and how they are shown again (`jaxrl play`)."""
