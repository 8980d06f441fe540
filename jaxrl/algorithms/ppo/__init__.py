"""Proximal policy optimisation (Schulman et al. 2017)."""

# (metric, label) of what is worth a place on the display of a run.
HIGHLIGHTS = (
    ("loss/policy", "policy loss"),
    ("loss/value", "value loss"),
    ("loss/entropy", "entropy"),
    ("ppo/approx_kl", "approx. KL"),
    ("ppo/clip_fraction", "clip fraction"),
    ("ppo/explained_variance", "explained var."),
    ("grad/norm", "grad norm"),
    ("ppo/learning_rate", "learning rate"),
)
