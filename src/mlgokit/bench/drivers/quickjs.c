// Runs a script in the interpreter.
#include "quickjs.h"
#include "input.h"

static JSValue print(JSContext *Context, JSValueConst This, int Count, JSValueConst *Values) {
  (void)This;
  for (int Index = 0; Index < Count; ++Index) {
    const char *Text = JS_ToCString(Context, Values[Index]);
    printf("%s%s", Index ? " " : "", Text ? Text : "?");
    JS_FreeCString(Context, Text);
  }
  putchar('\n');
  return JS_UNDEFINED;
}

int main(int Count, char **Words) {
  if (Count != 2)
    return 2;
  size_t Size;
  char *Text = readInput(Words[1], &Size);
  JSRuntime *Runtime = JS_NewRuntime();
  JSContext *Context = JS_NewContext(Runtime);
  JSValue Global = JS_GetGlobalObject(Context);
  JS_SetPropertyStr(Context, Global, "print", JS_NewCFunction(Context, print, "print", 1));
  JSValue Result = JS_Eval(Context, Text, Size, "script", JS_EVAL_TYPE_GLOBAL);
  int Failed = JS_IsException(Result);
  if (Failed) {
    JSValue Error = JS_GetException(Context);
    fprintf(stderr, "error: %s\n", JS_ToCString(Context, Error));
    return 1;
  }
  JS_FreeValue(Context, Result);
  JS_FreeValue(Context, Global);
  JS_FreeContext(Context);
  JS_FreeRuntime(Runtime);
  return 0;
}
