#include <stdio.h>
#include <stdlib.h>
#include "cJSON.h"
#include "cJSON_Utils.h"

int main(void)
{
    cJSON *first = cJSON_Parse("{\"name\": [1, 2.5, \"three\", null, true], \"deep\": {\"a\": {\"b\": [[], {}]}}}");
    cJSON *second = cJSON_Parse("{\"name\": [1, 2.5, \"four\"], \"wide\": \"\\u00e9\"}");
    cJSON *patch = cJSONUtils_GeneratePatches(first, second);
    char *text = cJSON_Print(patch);
    puts(text);
    free(text);
    printf("%d\n", cJSONUtils_ApplyPatches(first, patch));
    text = cJSON_PrintUnformatted(first);
    puts(text);
    free(text);
    return 0;
}
