"""Calls that LLVM's heuristic takes for as large as the bodies of what they call, and that are smaller."""


def source_of_calls(head: str, calls: int, *, end: str = "") -> str:
    """The C of a function ``head``, such as ``int main(void)``, that makes such calls and ends with ``end``."""
    body = " ".join(f"say_{index % 3}(0);" for index in range(calls))
    return f"""
int puts(const char *);
extern const char first[], second[], third[];
void emit(const char *text) {{ puts(text); }}
void say_0(int unused) {{ (void)unused; emit(first); }}
void say_1(int unused) {{ (void)unused; emit(second); }}
void say_2(int unused) {{ (void)unused; emit(third); }}
{head} {{ {body} {end}}}
const char first[] = "a", second[] = "b", third[] = "c";
"""
