"""DAgger: imitation of a teacher on the learner's own episodes (Ross et al. 2011)."""
