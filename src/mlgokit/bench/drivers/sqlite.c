// Makes a database in memory, fills it, asks it, changes it.
#include "input.h"
#include "sqlite3.h"
#include <string.h>

static uint64_t State = 1;
static long Rows;

static int row(void *Data, int Count, char **Values, char **Names) {
  (void)Data;
  (void)Names;
  ++Rows;
  for (int Index = 0; Index < Count; ++Index)
    if (Values[Index])
      State = digest(State, Values[Index], strlen(Values[Index]));
  return 0;
}

static sqlite3 *Database;

static void run(const char *Statement) {
  char *Error = NULL;
  if (sqlite3_exec(Database, Statement, row, NULL, &Error) != SQLITE_OK) {
    fprintf(stderr, "error: %s\n", Error);
    exit(1);
  }
  printf("%ld %.40s\n", Rows, Statement);
}

int main(void) {
  if (sqlite3_open(":memory:", &Database) != SQLITE_OK)
    return 1;
  run("create table item(id integer primary key, kind int, name text, price "
      "real)");
  run("create table sale(id integer primary key, item int, day int, amount "
      "int)");
  run("with recursive n(i) as (select 1 union all select i + 1 from n where i "
      "< 3000) insert into item select i, i * 7919 % 17, 'item ' || (i * 31 % "
      "977), (i * 271 % 1000) / 10.0 from n");
  run("with recursive n(i) as (select 1 union all select i + 1 from n where i "
      "< 12000) insert into sale select i, 1 + i * 7919 % 3000, i % 365, 1 + i "
      "* 13 % 9 from n");
  run("create index by_item on sale(item, day)");
  run("select kind, count(*), sum(amount * price), min(name), max(day) from "
      "item join sale on item = item.id group by kind order by 3 desc");
  run("select name, price from item where name like '%9_' and price between 10 "
      "and 60 order by price, name limit 200");
  run("select day, total(amount) over (order by day rows 6 preceding) from "
      "(select day, sum(amount) as amount from sale group by day)");
  run("update item set price = price * 1.1, name = upper(name) where kind in "
      "(select kind from item group by kind having avg(price) > 49)");
  run("delete from sale where id % 11 = 0");
  run("select printf('%05d|%.3f|%s', id, price, substr(name, 2, 5)) from item "
      "where id % 3 = 1");
  run("select group_concat(name, ',') from (select distinct name from item "
      "order by name)");
  run("pragma integrity_check");
  report("rows", State);
  sqlite3_close(Database);
  return 0;
}
