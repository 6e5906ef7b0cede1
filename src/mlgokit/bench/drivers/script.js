// Objects, arrays, strings, regular expressions, JSON and closures, a little of each.
"use strict";
class Shape { constructor(size) { this.size = size; } area() { return this.size; } }
class Square extends Shape { area() { return this.size * this.size; } }
let total = 0;
for (let i = 0; i < 4000; i++) total += (i % 2 ? new Square(i % 10) : new Shape(i)).area();
print("area", total);

const people = [];
for (let i = 0; i < 600; i++) people.push({ id: i, name: "n" + ((i * 7919) % 1009), tags: ["a" + (i % 5), "b" + (i % 3)] });
people.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.id - b.id));
const groups = people.reduce((map, one) => map.set(one.tags[0], (map.get(one.tags[0]) || 0) + one.id), new Map());
print("groups", [...groups].map(([key, value]) => `${key}=${value}`).sort().join(","));

const text = JSON.stringify(people);
const back = JSON.parse(text);
print("json", text.length, back.length, back[10].name);
print("regexp", (text.match(/"n(\d+)7"/g) || []).length, text.replace(/"id":(\d+)/g, (_, n) => `"${n * 2}"`).length);

function* fibonacci() { let [a, b] = [0n, 1n]; for (;;) { yield a; [a, b] = [b, a + b]; } }
let big = 0n;
let steps = 0;
for (const number of fibonacci()) { big = number; if (++steps > 200) break; }
print("bigint", big.toString());

const grid = new Float64Array(48 * 48);
for (let round = 0; round < 6; round++)
  for (let i = 49; i < grid.length - 49; i++)
    grid[i] = (grid[i - 1] + grid[i + 1] + grid[i - 48] + grid[i + 48] + i % 7) / 4.25;
print("grid", grid.reduce((a, b) => a + b, 0).toFixed(6));

const memo = {};
const ways = (n, k) => n === 0 ? 1 : n < 0 || k === 0 ? 0 : (memo[n + "/" + k] = memo[n + "/" + k] || ways(n - k, k) + ways(n, k - 1));
print("partitions", ways(70, 70));
