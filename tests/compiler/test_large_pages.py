"""Compilers are asked to have their memory in large pages, whatever else their environment says."""

import pytest

from mlgokit.compiler.compile import compiler_environment, request_large_pages


def test_clang_has_large_pages_beside_what_the_user_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of the allocator by whoever calls us stays, in the order in which it was said."""
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0:glibc.malloc.perturb=7")
    monkeypatch.delenv("MALLOC_CONF", raising=False)
    found = compiler_environment()
    assert found["GLIBC_TUNABLES"] == "glibc.malloc.check=0:glibc.malloc.perturb=7:glibc.malloc.hugetlb=1"
    assert found["MALLOC_CONF"] == "thp:always"


@pytest.mark.parametrize(
    ("variable", "value"),
    [("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2:glibc.malloc.check=0"), ("MALLOC_CONF", "narenas:1,thp:default")],
)
def test_the_users_choice_of_pages_is_kept(variable: str, value: str) -> None:
    """A choice of the user's is left alone."""
    assert request_large_pages({variable: value})[variable] == value
