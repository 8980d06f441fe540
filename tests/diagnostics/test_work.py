"""Reading compiled programs: against a text written by hand, and against a program whose counts are known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jaxrl.diagnostics.compiled_programs import bytes_of, read_work
from jaxrl.parallel.sharding import REPLICATED, SHARDED, Topology

# A loop of 5 turns with an all-reduce of 40 bytes; one of 3 in it, known only by its condition, with another
# of 8 + 4; and a loop of unknown length. Fusions of 100 cycles inside, 7 outside; a kernel in each loop of
# known length.
TEXT = """\
HloModule jit_f, is_scheduled=true, num_partitions=4

%fused (p: f32[10]) -> f32[10] {
  ROOT %p.1 = f32[10]{0} parameter(0), backend_config={"estimated_cycles":"1000000"}
}

%inner_body (a: (s32[], f32[10])) -> (s32[], f32[10]) {
  %a.1 = (s32[], f32[10]{0:T(128)S(1)}) parameter(0)
  %k = f32[10]{0} custom-call(%a.1), custom_call_target="tpu_custom_call", backend_config={"body":"TUz"}
  %b = (bf16[4]{0:T(128)}, f32[]) all-reduce-start(%a.1), channel_id=2, to_apply=%add
  %c = (bf16[4]{0:T(128)}, f32[]) all-reduce-done(%b)
}

%inner_condition (a: (s32[], f32[10])) -> pred[] {
  %three = s32[]{:T(128)} constant(3)
  %a.2 = (s32[], f32[10]{0}) parameter(0)
  %i = s32[] get-tuple-element(%a.2), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i, %three), direction=LT
}

%body (a: (s32[], f32[10])) -> (s32[], f32[10]) {
  %a.3 = (s32[], f32[10]{0}) parameter(0)
  %d = f32[10]{0} fusion(%a.3), kind=kLoop, calls=%fused, backend_config={"estimated_cycles":"100"}
  %e = f32[10]{0} all-reduce(%d), channel_id=1, to_apply=%add, metadata={op_name="body=%x condition=%y"}
  %k.1 = f32[10]{0} custom-call(%e), custom_call_target="tpu_custom_call", backend_config={"body":"TUz"}
  %s = f32[10]{0} custom-call(%k.1), custom_call_target="Sharding"
  ROOT %w = (s32[], f32[10]{0}) while(%a.3), condition=%inner_condition, body=%inner_body
}

%unknown_condition (a: (s32[], s32[])) -> pred[] {
  %a.4 = (s32[], s32[]) parameter(0)
  %i.2 = s32[] get-tuple-element(%a.4), index=0
  %n = s32[] get-tuple-element(%a.4), index=1
  ROOT %lt.2 = pred[] compare(%i.2, %n), direction=LT
}

%unknown_body (a: (s32[], s32[])) -> (s32[], s32[]) {
  %a.5 = (s32[], s32[]) parameter(0)
  %w.2 = (s32[], s32[]) while(%a.5), condition=%c9, body=%body, backend_config={"known_trip_count":{"n":"5"}}
}

ENTRY %main (p: f32[10]) -> f32[10] {
  %p.2 = f32[10]{0} parameter(0)
  %f = f32[10]{0} fusion(%p.2), kind=kLoop, calls=%fused, backend_config={"estimated_cycles":"7"}
  ROOT %w.3 = (s32[], s32[]) while(%f), condition=%unknown_condition, body=%unknown_body
}
"""


def test_loops_multiply() -> None:
    work = read_work(TEXT)
    assert sorted((c.kind, c.times, c.bytes) for c in work.collectives) == [
        ("all-reduce", 5, 40),
        ("all-reduce", 15, 12),
    ]
    assert work.exchanges == 20
    assert work.exchanged_bytes == 5 * 40 + 15 * 12
    assert work.cycles == 7 + 5 * 100  # what is inside a fusion is part of the fusion's
    assert work.own_kernels == 5 + 15


@pytest.mark.parametrize(
    ("shape", "operation", "count"),
    [
        # A vector of 64 bytes and its quarters, of which an all-reduce sends twice as much as the others.
        ("f32[16]{0}", "all-reduce", 64),
        ("f32[4]{0}", "reduce-scatter", 32),
        ("f32[4]{0}", "fusion", 32),
        ("(f32[16]{0}, f32[4]{0})", "reduce-scatter-start", 32),
        ("f32[16]{0}", "all-gather", 32),
        ("(f32[4]{0}, f32[16]{0})", "all-gather-start", 32),
        ("(f32[16]{0}, f32[16]{0})", "collective-permute-start", 64),
    ],
)
def test_bytes_of_exchanges(shape: str, operation: str, count: int) -> None:
    lines = (
        "HloModule f, num_partitions=4",
        "ENTRY %main (p: f32[4]) -> f32[4] {",
        f"  %x = {shape} {operation}(%p), calls=%all-reduce-scatter.1",
    )
    assert read_work("\n".join(lines)).exchanged_bytes == count


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ("f32[8,64]{1,0:T(8,128)}", 2048),
        ("pred[]", 1),
        ("(s32[], bf16[3]{0}, u8[2,2], f64[2])", 4 + 6 + 4 + 16),
        ("f8e4m3fn[16]", 16),
    ],
)
def test_bytes_of_shapes(shape: str, count: int) -> None:
    assert bytes_of(shape) == count


def test_a_compiled_program() -> None:
    topology = Topology.of(1)

    def f(x: jax.Array) -> jax.Array:
        def step(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
            return topology.axis.psum(jnp.sin(carry)), None

        return jax.lax.scan(step, x, length=6)[0]

    compiled = topology.shard(f, SHARDED, REPLICATED).lower(jnp.ones((4, 4))).compile()
    work = read_work(compiled.as_text())
    # One device needs no exchange, but XLA keeps what the program asks for.
    assert (work.exchanges, work.exchanged_bytes) in ((6, 6 * 64), (0, 0))
    assert work.cycles == 0
