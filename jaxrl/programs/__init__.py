"""An iteration as one compiled program, and the runtimes that run it."""
