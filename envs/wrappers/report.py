"""`report`: reports an entry of the environment's info that its spec does not declare."""

from __future__ import annotations

import dataclasses

from jaxrl.envs.base import JaxEnv
from jaxrl.envs.reports import InfoMetric, with_report
from jaxrl.envs.wrappers.wrapper import Wrapper


class ReportInfo(Wrapper):
    """Declares that `info[key]` is reported of every episode, see `InfoMetric`; changes nothing."""

    for_agents = True

    def __init__(self, env: JaxEnv, key: str, per_episode: str = "last"):
        super().__init__(env)
        try:
            self.report = InfoMetric(key, per_episode)
        except ValueError as error:
            raise ValueError(f"wrapper report: {error}") from error
        self.spec = dataclasses.replace(env.spec, reports=with_report(env.spec.reports, self.report))
