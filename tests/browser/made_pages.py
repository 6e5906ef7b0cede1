"""Reports with generated rows, as large as a test wants them."""

from mlgokit.builds.images import FunctionBytes
from mlgokit.evaluation.page import evaluation_page, symbols_of
from mlgokit.evaluation.records import (
    BuiltModule,
    Change,
    Evaluation,
    ExplainedComponent,
    ExplainedSite,
    FeatureWeight,
    FunctionComparison,
    FunctionTree,
    ModuleComparison,
    ProjectComparison,
    Sizes,
    TreeLine,
    Verdict,
)
from mlgokit.pages.model import Page

PROJECTS = 10


def made_evaluation(modules: int, functions: int, name: str = "") -> Evaluation:
    """An evaluation with generated rows of ten projects, whose objects shrink but for a few.

    Args:
        modules: of all projects together.
        functions: that differ in each module.
        name: what every name ends in.
    """

    def module(index: int) -> ModuleComparison:
        before = 200 + 37 * index
        after = before + (index % 97) - 90
        old, new = (BuiltModule(status="ok", objects=size, text=size, user_seconds=1.0) for size in (before, after))
        differing = tuple(
            FunctionComparison(
                function=f"_ZN4some9namespace{index}function{which}Ev{name}",
                before=FunctionBytes(text=100 + which),
                after=FunctionBytes(text=90 + 3 * which + index % 7),
            )
            for which in range(functions)
        )
        path = f"src/library/component/m{index:05}.cpp.o{name}"
        return ModuleComparison(module=path, before=old, after=new, functions=2 * functions, differing=differing)

    rows = [module(index) for index in range(modules)]
    projects = tuple(
        ProjectComparison(
            project=f"project{which}{name}",
            language="c++",
            modules=len(rows[which::PROJECTS]),
            before=_sizes(100_000),
            after=_sizes(99_000 + 150 * which),
            larger_modules=1,
            user_seconds_before=1.0,
            user_seconds_after=1.0,
            module_rows=tuple(rows[which::PROJECTS]),
        )
        for which in range(PROJECTS)
    )
    sites = [
        ExplainedSite(
            site=f"{which:#018x}",
            caller=f"_ZN4some6caller{which}Ev{name}",
            callee=f"_ZN4some6callee{which}Ev{name}",
            plain=False,
            heuristic=False,
            decided=which % 3 != 0,
            preference=0.5,
            members=6,
            agree=5,
            features=tuple(
                FeatureWeight(feature=f"feature_{number}{name}", value=number, typical=0.5, change=0.25)
                for number in range(4)
            ),
        )
        for which in range(12)
    ]
    trees = tuple(
        FunctionTree(
            function=f"_ZN4some9namespace{which}function19Ev{name}",
            module=rows[which].module,
            project=f"project{which % PROJECTS}{name}",
            growth=53 if which < PROJECTS else -10,
            before=119,
            after=172,
            component=ExplainedComponent(number=which, change=-40, differences=8, functions=3),
            lines=tuple(TreeLine(depth=place % 4, site=site) for place, site in enumerate(sites)),
            more=2,
        )
        for which in range(2 * PROJECTS)
    )
    change = Change(mean=-0.003, low=-0.006, high=-0.001, projects=PROJECTS)
    return Evaluation(
        policy="generated",
        projects=projects,
        summary={"c++": {"image": change}},
        overall={"image": change},
        compilations=2 * modules,
        trees=trees,
        verdict=Verdict(ship=False, measure="image", sentence=f"Do not ship: {name}", reasons=(name,)),
        source=name,
        command=f"mlgokit evaluate {name}",
    )


def made_page(evaluation: Evaluation) -> Page:
    """Its page, with names for symbols; generated ones, so that no demangler is timed."""
    return evaluation_page(evaluation, {one: f"some::name::of({one[3:]})" for one in symbols_of(evaluation)})


def _sizes(image: int) -> Sizes:
    return Sizes(objects=image, link_aware=image, text=image, rodata=0, eh_frame=0, image=image)
