"""Behavioural cloning: maximum likelihood of demonstrated actions (Pomerleau 1988)."""
