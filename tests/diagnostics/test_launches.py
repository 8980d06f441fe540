"""Counting the kernels of GPU programs, against a text written by hand."""

from __future__ import annotations

import pytest

from jaxrl.diagnostics.launches import LAUNCH_SECONDS, IterationTime, read_launches

# An iteration (a loop of unknown length) with a copy, a rollout of 4 steps and an update of 2 x 3.
# A step: a product, a row stored in place in f32[4,8], and a conditional with branches of 2 kernels and 1.
TEXT = """\
HloModule jit_repeat, is_scheduled=true

%product (p: f32[8,2], q: f32[2,2]) -> f32[8,2] {
  %p = f32[8,2]{1,0} parameter(0)
  %q = f32[2,2]{1,0} parameter(1)
  ROOT %dot = f32[8,2]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%store (rows: f32[4,8], i: s32[], row: f32[8]) -> f32[4,8] {
  %rows = f32[4,8]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %row = f32[8]{0} parameter(2)
  %zero = s32[] constant(0)
  %flat = f32[1,8]{1,0} bitcast(%row)
  ROOT %dus = f32[4,8]{1,0} dynamic-update-slice(%rows, %flat, %i, %zero)
}

%load (rows: f32[4,8], i: s32[]) -> f32[8] {
  %rows.1 = f32[4,8]{1,0} parameter(0)
  %i.1 = s32[] parameter(1)
  %zero.1 = s32[] constant(0)
  %ds = f32[1,8]{1,0} dynamic-slice(%rows.1, %i.1, %zero.1), dynamic_slice_sizes={1,8}
  ROOT %sum = f32[8]{0} bitcast(%ds)
}

%long (a: f32[8]) -> f32[8] {
  %a.1 = f32[8]{0} parameter(0)
  %c1 = f32[8]{0} copy(%a.1)
  ROOT %c2 = f32[8]{0} copy(%c1)
}

%short (a: f32[8]) -> f32[8] {
  %a.2 = f32[8]{0} parameter(0)
  ROOT %c3 = f32[8]{0} copy(%a.2)
}

%step_condition (t: (s32[], f32[4,8])) -> pred[] {
  %t.1 = (s32[], f32[4,8]{1,0}) parameter(0)
  ROOT %f.1 = pred[] fusion(%t.1), kind=kLoop, calls=%compare
}

%step (t: (s32[], f32[4,8], f32[8,2], f32[2,2], f32[8])) -> (s32[], f32[4,8]) {
  %t.2 = (s32[], f32[4,8]{1,0}, f32[8,2]{1,0}, f32[2,2]{1,0}, f32[8]{0}) parameter(0)
  %n = s32[] get-tuple-element(%t.2), index=0
  %all = f32[4,8]{1,0} get-tuple-element(%t.2), index=1
  %x = f32[8,2]{1,0} get-tuple-element(%t.2), index=2
  %w = f32[2,2]{1,0} get-tuple-element(%t.2), index=3
  %one = f32[8]{0} get-tuple-element(%t.2), index=4
  %y = f32[8,2]{1,0} fusion(%x, %w), kind=kCustom, calls=%product, metadata={op_name="jit(repeat)/rollout/dot"}
  %kept = f32[4,8]{1,0} fusion(%all, %n, %one), kind=kLoop, calls=%store, metadata={op_name="jit(repeat)/rollout/dus"}
  %either = f32[8]{0} conditional(%n, %one, %one), branch_computations={%short, %long}, metadata={op_name="jit(repeat)/rollout/cond"}
  ROOT %out = (s32[], f32[4,8]{1,0}) tuple(%n, %kept)
}

%inner (t: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %t.3 = (s32[], f32[4,8]{1,0}) parameter(0)
  %n.3 = s32[] get-tuple-element(%t.3), index=0
  %all.3 = f32[4,8]{1,0} get-tuple-element(%t.3), index=1
  %row.3 = f32[8]{0} fusion(%all.3, %n.3), kind=kLoop, calls=%load, metadata={op_name="jit(repeat)/update/ds"}
  ROOT %out.3 = (s32[], f32[4,8]{1,0}) tuple(%n.3, %all.3)
}

%outer (t: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %t.4 = (s32[], f32[4,8]{1,0}) parameter(0)
  ROOT %w.4 = (s32[], f32[4,8]{1,0}) while(%t.4), condition=%step_condition, body=%inner, backend_config={"known_trip_count":{"n":"3"}}, metadata={op_name="jit(repeat)/update/while"}
}

%unknown (t: (s32[], f32[4,8])) -> pred[] {
  %t.5 = (s32[], f32[4,8]{1,0}) parameter(0)
  ROOT %f.5 = pred[] fusion(%t.5), kind=kLoop, calls=%compare
}

%iteration (t: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %t.6 = (s32[], f32[4,8]{1,0}) parameter(0)
  %all.6 = f32[4,8]{1,0} get-tuple-element(%t.6), index=1
  %c.6 = f32[4,8]{1,0} copy(%all.6)
  %w.6 = (s32[], f32[4,8]{1,0}) while(%t.6), condition=%step_condition, body=%step, backend_config={"known_trip_count":{"n":"4"}}, metadata={op_name="jit(repeat)/rollout/while"}
  ROOT %w.7 = (s32[], f32[4,8]{1,0}) while(%w.6), condition=%step_condition, body=%outer, backend_config={"known_trip_count":{"n":"2"}}, metadata={op_name="jit(repeat)/update/while"}
}

ENTRY %main (p: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %p.8 = (s32[], f32[4,8]{1,0}) parameter(0)
  ROOT %w.8 = (s32[], f32[4,8]{1,0}) while(%p.8), condition=%unknown, body=%iteration
}
"""  # noqa: E501


def test_kernels_by_loop_and_phase() -> None:
    launches = read_launches(TEXT)
    rows = [(loop.phase, loop.turns, loop.kernels, loop.conditionals) for loop in launches.loops]
    # Outside: the copy, and the condition of the loop whose length is not known. The larger branch counts.
    assert rows == [("other", 1, 2, 0), ("rollout", 4, 2 + 2, 1), ("update", 6, 1, 0)]
    assert launches.kernels == 2 + 4 * 4 + 6
    assert launches.conditionals == 4
    assert launches.phases == {"rollout": 16, "update": 6, "other": 2}
    step = launches.innermost("rollout")
    assert step is not None
    assert (step.turns, step.kernels) == (4, 4)
    assert launches.innermost("advantage") is None


def test_bytes_that_kernels_move() -> None:
    _, step, inner = read_launches(TEXT).loops
    product = 4 * (16 + 4 + 16)
    # What is stored in place or taken as a window moves its row, not the array around it.
    stored = 4 * (8 + 1 + 8)
    copies = 2 * 4 * (8 + 8)
    assert step.bytes == product + stored + copies
    assert inner.bytes == 4 * (8 + 1 + 8)


def test_parts_of_an_iteration() -> None:
    time = IterationTime.of(kernels=5000, moved=48_000_000, flops=1e9, bandwidth=4.8e12, peak=5e14)
    assert time.launches == pytest.approx(5000 * LAUNCH_SECONDS)
    assert time.memory == pytest.approx(1e-5)
    assert time.arithmetic == pytest.approx(2e-6)
    assert time.least == time.launches
    assert time.most == pytest.approx(0.010012)
