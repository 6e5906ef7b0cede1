"""What is known of a call and of a component in words, the same in the terminal and on the page."""

from mlgokit.evaluation.explained import ExplainedComponent, ExplainedSite

_DONE = {True: "inlined", False: "not inlined", None: "not asked"}


def decisions(site: ExplainedSite) -> tuple[str, ...]:
    """What LLVM did and what is done now, in one mark if that is the same and no difference."""
    if not site.differs and site.llvm == site.decided:
        return (_DONE[site.llvm],)
    return f"LLVM: {_DONE[site.llvm]}", f"now: {_DONE[site.decided]}"


def reason(site: ExplainedSite) -> str:
    """Who decided, and how surely; empty where that is not known."""
    if site.by_table:
        return "decided by the plugin's table"
    if site.preference is None:
        return ""
    return f"preference {site.preference:+.2f}, {site.agree} of {site.members} members agree"


def component_sum(component: ExplainedComponent) -> str:
    """The bytes of a component, and how many differences share them."""
    if component.differences == 1:
        return f"component {component.number}: {component.change:+,} bytes by one difference"
    return (
        f"component {component.number}: {component.change:+,} bytes in {component.functions:,} functions by "
        f"{component.differences:,} differences together"
    )
