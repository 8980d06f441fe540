"""An ONNX graph of a policy, built from the layers that its network describes."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl.inference import numpy_cores
from jaxrl.inference.onnx_cores import CORES
from jaxrl.inference.onnx_layers import HEADS, OPERATIONS


def element_type(dtype: Any) -> int:
    """ONNX's number for a dtype."""
    import onnx

    found: int = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return found


def _node(*arguments: Any, **attributes: Any) -> Any:
    import onnx

    return onnx.helper.make_node(*arguments, **attributes)


class Graph:
    """Nodes and constants; a value goes by the name of the node that computes it.

    Args:
      weights: `arrays.arrays_by_name` of the policy.
      clip: bound of normalised observations, 0 for none.
    """

    def __init__(self, weights: dict[str, np.ndarray], clip: float):
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self._weights = weights
        self._clip = clip

    def policy(self, network: dict[str, Any], masked: bool) -> None:
        """Adds the whole policy, from its inputs to its outputs."""
        features = []
        for trunk, part in network["trunks"].items():
            encoded = [self._encode(encoder) for encoder in part["encoders"]]
            x = encoded[0] if len(encoded) == 1 else self.op("Concat", *encoded, axis=1)
            features.append(self._remember(part["core"], trunk, x))
        HEADS[network["head"]["type"]](self, network["head"], features[0], masked)
        second = self.constant([1], np.int64)
        if "value" in network:
            self.op("Squeeze", self.dense(network["value"]["weights"], features[-1]), second, result="value")
        else:
            self.op("ReduceMax", "distribution.q", second, keepdims=0, result="value")

    def run(self, layers: list[dict[str, Any]], x: str) -> str:
        """Adds one layer after the other."""
        for layer in layers:
            x = OPERATIONS[layer["op"]](self, layer, x)
        return x

    def op(self, kind: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """Adds a node with one result, named automatically unless `result` names it."""
        return self.several(kind, inputs, 1, result, **attributes)[0]

    def several(
        self, kind: str, inputs: tuple[str, ...], count: int, result: str = "", **attributes: Any
    ) -> list[str]:
        """Adds a node with `count` results."""
        names = [f"{kind.lower()}_{len(self.nodes)}_{i}" for i in range(count)]
        names = [result] if result else names
        self.nodes.append(_node(kind, list(inputs), names, **attributes))
        return names

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """Adds an array that is no weight."""
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def weight(self, name: str) -> str:
        """Adds an array of the policy under its own name."""
        self.constants[name] = self._weights[name]
        return name

    def param(self, name: str) -> str:
        """Adds a parameter."""
        return self.weight(f"params.{name}")

    def kernel(self, name: str) -> str:
        """Adds the parameter of a convolution: channels are last in the arrays but first in ONNX."""
        name = f"params.{name}"
        self.constants[name] = np.ascontiguousarray(self._weights[name].transpose(3, 2, 0, 1))
        return name

    def value_of(self, name: str) -> np.ndarray:
        """A parameter, to compute a constant from."""
        return self._weights[f"params.{name}"]

    def cast(self, x: str, dtype: Any) -> str:
        """Adds a conversion."""
        return self.op("Cast", x, to=element_type(dtype))

    def dense(self, name: str, x: str) -> str:
        """Adds a linear layer."""
        return self.op("Gemm", x, self.param(f"{name}.kernel"), self.param(f"{name}.bias"))

    def _encode(self, encoder: dict[str, Any]) -> str:
        name = encoder["input"]
        layers = encoder["layers"]
        x = name if layers and layers[0]["op"] == "one_hot" else self.cast(name, np.float32)
        if f"normalizer.{name}.mean" in self._weights:
            x = self.op("Sub", x, self.weight(f"normalizer.{name}.mean"))
            x = self.op("Div", x, self.weight(f"normalizer.{name}.std"))
            if self._clip:
                x = self.op("Clip", x, self.constant(-self._clip), self.constant(self._clip))
        return self.run(layers, x)

    def _remember(self, core: dict[str, Any], place: str, x: str) -> str:
        """Adds a core whose carry is `carry.{place}`."""
        if core["type"] == "stack":
            return self._remember_layers(core, place, x)
        if f"params.{core.get('weights')}.embedding" in self._weights:
            weights = (self.param(f"{core['weights']}.{part}") for part in ("embedding", "embedding_bias"))
            x = self.op("Gemm", x, *weights)
        y = CORES[core["type"]](self, core, x, self._keep(core, place), f"next_carry.{place}")
        return self.run([{"op": core["activation"]}], y) if "activation" in core else y

    def _remember_layers(self, core: dict[str, Any], place: str, x: str) -> str:
        for i, layer in enumerate(core["layers"]):
            normed = self.run(core["norms"][i - 1 : i], x) if i else x
            y = self._remember(layer, f"{place}.layer_{i}", normed)
            x = self.op("Add", x, y) if i and core["norms"] else y
        return x

    def _keep(self, core: dict[str, Any], place: str) -> dict[str, str]:
        """The carry of a core, zeros where an episode begins."""
        kept = {}
        for name, shape in numpy_cores.CORES[core["type"]].carry(core).items():
            reset = self.op("Unsqueeze", "reset", self.constant(range(1, len(shape) + 1), np.int64))
            kept[name] = self.op("Where", reset, self.constant(0), f"carry.{place}.{name}")
        return kept
