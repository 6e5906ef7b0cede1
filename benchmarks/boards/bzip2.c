#include <stdio.h>
#include <string.h>
#include "bzlib.h"

static char text[20000], packed[30000], again[20000];

void bz_internal_error(int code) { printf("error %d\n", code); }

int main(void)
{
    for (unsigned i = 0; i < sizeof(text); i++)
        text[i] = "some text that repeats itself "[i % 30] + (i % 1001 == 0);
    unsigned size = sizeof(packed), length = sizeof(again);
    int first = BZ2_bzBuffToBuffCompress(packed, &size, text, sizeof(text), 1, 0, 0);
    int second = BZ2_bzBuffToBuffDecompress(again, &length, packed, size, 0, 0);
    printf("%d %u %d %u\n", first, size, second, length);
    return memcmp(text, again, sizeof(text));
}
