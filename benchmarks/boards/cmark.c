#include <stdio.h>
#include <string.h>
#include "cmark.h"

static const char text[] = "# Title\n\nA *paragraph* with `code`, a [link](https://example.org \"x\") and &amp;.\n\n"
                           "1. one\n2. two\n   > quoted\n\n```c\nint x;\n```\n\n<b>raw</b>\n";

int main(void)
{
    cmark_node *document = cmark_parse_document(text, strlen(text), CMARK_OPT_SMART);
    puts(cmark_render_html(document, CMARK_OPT_UNSAFE));
    puts(cmark_render_commonmark(document, 0, 40));
    puts(cmark_render_xml(document, 0));
    return 0;
}
