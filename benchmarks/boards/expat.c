#include <stdio.h>
#include <string.h>
#include "expat.h"

#ifdef __wasi__
int getpid(void) { return 1; }
#endif

static const char text[] = "<?xml version='1.0' encoding='ISO-8859-1'?>\n<!DOCTYPE list [<!ENTITY who 'world'>\n"
                           "<!ATTLIST item kind CDATA 'plain'>]>\n<list xmlns:n='urn:n'><item id='1'>hello &who;</item>"
                           "<n:item kind='odd'><![CDATA[<raw>]]></n:item><!-- said --><?do it?></list>";

static void XMLCALL begin(void *depth, const XML_Char *name, const XML_Char **attributes)
{
    printf("%*s%s", 2 * (*(int *)depth)++, "", name);
    for (; *attributes; attributes += 2)
        printf(" %s=%s", attributes[0], attributes[1]);
    puts("");
}

static void XMLCALL end(void *depth, const XML_Char *name)
{
    printf("%*s/%s\n", 2 * --*(int *)depth, "", name);
}

static void XMLCALL characters(void *depth, const XML_Char *found, int count)
{
    printf("%*s\"%.*s\"\n", 2 * *(int *)depth, "", count, found);
}

int main(void)
{
    int depth = 0;
    XML_Parser parser = XML_ParserCreateNS(NULL, '|');
    XML_SetUserData(parser, &depth);
    XML_SetElementHandler(parser, begin, end);
    XML_SetCharacterDataHandler(parser, characters);
    printf("%d\n", XML_Parse(parser, text, strlen(text), 1));
    XML_ParserReset(parser, NULL);
    XML_Parse(parser, "<a><b></a>", 10, 1);
    printf("%s, line %d\n", XML_ErrorString(XML_GetErrorCode(parser)), (int)XML_GetCurrentLineNumber(parser));
    XML_ParserFree(parser);
    return 0;
}
