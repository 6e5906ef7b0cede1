// Runs a script in the interpreter.
#include "lua.h"
#include "lauxlib.h"
#include "lualib.h"
#include <stdio.h>

int main(int Count, char **Words) {
  if (Count != 2)
    return 2;
  lua_State *State = luaL_newstate();
  luaL_openlibs(State);
  if (luaL_dofile(State, Words[1]) != LUA_OK) {
    fprintf(stderr, "error: %s\n", lua_tostring(State, -1));
    return 1;
  }
  lua_close(State);
  return 0;
}
