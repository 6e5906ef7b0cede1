-- Numbers, tables, strings, closures, coroutines and patterns, a little of each.
local function queens(n)
  local count, columns, up, down = 0, {}, {}, {}
  local function place(row)
    if row > n then count = count + 1 return end
    for column = 1, n do
      local u, d = row + column, row - column + n
      if not columns[column] and not up[u] and not down[d] then
        columns[column], up[u], down[d] = true, true, true
        place(row + 1)
        columns[column], up[u], down[d] = nil, nil, nil
      end
    end
  end
  place(1)
  return count
end
print("queens", queens(7))

local words = {}
for i = 1, 4000 do words[i] = string.format("%05d-%s", (i * 7919) % 10007, string.rep("ab", i % 5)) end
table.sort(words, function(a, b) return a > b end)
local joined = table.concat(words, " ")
print("sorted", #joined, joined:sub(1, 40))
local found = 0
for number, letters in joined:gmatch("(%d+)%-(%a+)") do
  if tonumber(number) % 3 == 0 then found = found + #letters end
end
print("matched", found, (joined:gsub("ab", { ab = "c" })):len())

local Account = {}
Account.__index = Account
function Account.new(balance) return setmetatable({ balance = balance }, Account) end
function Account:deposit(amount) self.balance = self.balance + amount return self end
local accounts = {}
for i = 1, 300 do accounts[i] = Account.new(i) end
for round = 1, 60 do
  for i = 1, #accounts do accounts[i]:deposit(round * i % 7) end
end
local sum = 0
for _, account in ipairs(accounts) do sum = sum + account.balance end
print("accounts", sum)

local function primes(limit)
  return coroutine.wrap(function()
    local sieve = {}
    for i = 2, limit do
      if not sieve[i] then
        coroutine.yield(i)
        for j = i * i, limit, i do sieve[j] = true end
      end
    end
  end)
end
local last, many = 0, 0
for prime in primes(20000) do last, many = prime, many + 1 end
print("primes", many, last)

local x, y = 0.5, 0.25
for i = 1, 60000 do x, y = x * x - y * y + 0.1, 2 * x * y - 0.2 end
print(string.format("orbit %.9f %.9f", x, y))
