"""Phases of a program's instructions, against a text written by hand."""

from __future__ import annotations

from jaxrl.diagnostics.compiled_programs import PhaseMap, ProgramText

TEXT = """\
HloModule jit_f

%fused (p: f32[]) -> f32[] {
  %p.1 = f32[] parameter(0)
  %sin = f32[] sine(%p.1), metadata={op_name="jit(f)/rollout/core/sin"}
  ROOT %copy = f32[] copy(%sin)
}

ENTRY %main (p: f32[]) -> f32[] {
  %p.2 = f32[] parameter(0), metadata={op_name="x"}
  %a = f32[] fusion(%p.2), kind=kLoop, calls=%fused
  %b = f32[] multiply(%a, %a), metadata={op_name="jit(f)/update/loss/mul"}
  %again = f32[] negate(%b), metadata={op_name="checkpoint/remat/neg"}
  ROOT %c = f32[] copy(%b)
}
"""


def test_instructions_have_the_phase_they_name_or_contain_or_lie_in() -> None:
    phases = PhaseMap(ProgramText.parse(TEXT))
    assert phases.place("b") == ("update", "update/loss/mul")
    # A fusion without a name is what its named instructions are.
    assert phases.place("a") == ("rollout", "rollout/core/sin")
    # All that is named around it says rollout.
    assert phases.place("copy") == ("rollout", "")
    # Around it are one of rollout and one of update.
    assert phases.place("c") == ("other", "")
    # What is computed again is no phase of its own.
    assert phases.place("again") == ("other", "checkpoint/remat/neg")
    assert phases.place("unknown") == ("other", "")
