"""How well a trained policy acts: whole episodes, suites of environments, films."""
