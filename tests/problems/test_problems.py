from mlgokit.problems import INLINE_SIZE, PROBLEMS
from mlgokit.spec import AdviceKind


def test_every_problem_is_listed_under_its_name():
    assert all(name == problem.name for name, problem in PROBLEMS.items())
    assert PROBLEMS["inline-size"] is INLINE_SIZE


def test_every_channel_says_where_it_is_once():
    for problem in PROBLEMS.values():
        for include_default in (True, False):
            options = problem.channel_for(22, include_default=include_default).options
            assert "".join(options).count("{base}") == 1
            assert all(option.startswith("-") for option in options)


def test_the_default_decision_is_sent_on_request():
    option = "-inliner-interactive-include-default"
    assert option in INLINE_SIZE.channel_for(22, include_default=True).options
    assert option not in INLINE_SIZE.channel_for(22, include_default=False).options


def test_old_compilers_send_the_default_decision_in_the_place_of_a_feature():
    place = ("callee_basic_block_count", "inlining_default")
    assert INLINE_SIZE.channel_for(20, include_default=True).overwritten == place
    assert INLINE_SIZE.channel_for(21, include_default=True).overwritten is None
    assert INLINE_SIZE.channel_for(20, include_default=False).overwritten is None


def test_features_are_told_apart_from_decisions():
    for problem in PROBLEMS.values():
        assert len(set(problem.features)) == len(problem.features)
        assert not {problem.decision, problem.default_decision} & set(problem.features)


def test_inlining_for_size():
    assert INLINE_SIZE.advice_kind is AdviceKind.BINARY
    assert len(INLINE_SIZE.features) == 38
