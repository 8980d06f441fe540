"""The ONNX graphs of several policies as one: their nodes under names of their own, and the mean of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from jaxrl.evaluation.policy_function import PolicyMean
from jaxrl.inference.ensemble_function import ACTIONS, Q_VALUES
from jaxrl.inference.onnx_graph import Graph
from jaxrl.inference.onnx_layers import act_discrete

# Inputs that all policies read, but for the parts of an observation, `obs.PART`.
_SHARED = ("obs", "reset", "action_mask")
# Inputs and outputs that each policy has for itself: `carry.policy.h` becomes `carry.member_0.policy.h`.
_OWN = ("carry", "next_carry", "distribution")


def join_graphs(members: Mapping[str, Graph], mean: PolicyMean) -> Graph:
    """The graph of all members, by the prefixes of their names."""
    graph = Graph({}, 0.0)
    for prefix, member in members.items():
        _adopt(graph, member, functools.partial(_add_prefix, prefix=prefix))
    of_each = lambda name: [_add_prefix(name, prefix) for prefix in members]  # noqa: E731
    graph.op("Mean", *of_each("value"), result="value")
    if mean.of == ACTIONS:
        graph.op("Mean", *of_each("action"), result="action")
    else:
        _choose(graph, mean, of_each)
    return graph


def _choose(graph: Graph, mean: PolicyMean, of_each: Callable[[str], Iterable[str]]) -> None:
    """Adds the mean over members, and the best action by it."""
    kind = "q" if mean.of == Q_VALUES else "logits"
    sizes = graph.constant(mean.sizes, np.int64)
    count = len(mean.sizes)
    split = [graph.several("Split", (x, sizes), count, axis=1) for x in of_each(f"distribution.{kind}")]
    means = []
    for part in zip(*split, strict=True):
        scores = part if kind == "q" else [graph.op("LogSoftmax", x, axis=1) for x in part]
        means.append(graph.op("Mean", *scores))
    graph.op("Concat", *means, axis=1, result=f"distribution.{kind}")
    best = [graph.op("ArgMax", x, axis=1, keepdims=int(mean.is_vector)) for x in means]
    action = graph.op("Concat", *best, axis=1) if mean.is_vector else best[0]
    act_discrete(graph, mean.start, action)


def _adopt(graph: Graph, member: Graph, renamed: Callable[[str], str]) -> None:
    """Adds the nodes and constants of another graph under other names."""
    for node in member.nodes:
        for names in (node.input, node.output):
            given = [renamed(name) for name in names]
            del names[:]
            names.extend(given)
        graph.nodes.append(node)
    graph.constants |= {renamed(name): x for name, x in member.constants.items()}


def _add_prefix(name: str, prefix: str) -> str:
    first, _, rest = name.partition(".")
    if not name or first in _SHARED:
        return name
    return f"{first}.{prefix}{rest}" if first in _OWN else f"{prefix}{name}"
