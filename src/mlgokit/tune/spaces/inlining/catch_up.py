"""What a step found, beside what others found in the same module since it began."""

import dataclasses

from mlgokit.compiler.objects.account import ProjectAccount
from mlgokit.tune.spaces.inlining.merge import scored, smaller_parts
from mlgokit.tune.spaces.inlining.state import ModuleState, StepResult
from mlgokit.tune.spaces.inlining.step import COMPOSED


def catch_up(step: StepResult, state: ModuleState, account: ProjectAccount) -> StepResult:
    """The step as if it had departed from what others found since it began; the caller holds the account's lock.

    What it found is taken where it is smaller than what is there now, component by component, and so is what they
    found, if the step compiled what they departed from. Where both changed the same function, the better one stays.
    """
    name, current = state.module.name, state.composed or state.build
    found = step.composed or step.build
    best = min(scored(one, account, name)[1] for one in (state.build, step.build) if one is not None)
    if found is None:
        # A promise that does not hold takes with it what was added to it.
        kept = None if step.confirms else state.composed
        return dataclasses.replace(step, composed=kept, composed_steps=0 if kept is None else state.composed_steps)
    if step.confirms:
        joined = smaller_parts(found, current, account, name, newer=False).build or step.composed
        steps = max(1, state.composed_steps - COMPOSED + 1)
    else:
        joined = smaller_parts(current, found, account, name).build
        steps = state.composed_steps + (joined is not None)
    before = scored(current, account, name)[1]
    now = before if joined is None else scored(joined, account, name)[1]
    if not step.confirms and now >= before:
        joined, now, steps = state.composed, before, state.composed_steps
        step = dataclasses.replace(step, kept=0, saved=0.0)
    if joined is None or now >= best:
        return dataclasses.replace(step, composed=None, composed_steps=0)
    return dataclasses.replace(step, composed=joined, composed_steps=steps)
