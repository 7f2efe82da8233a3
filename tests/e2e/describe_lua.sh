#!/bin/sh
# describe_lua.sh: `nrl describe lua` names every function that a script can call, and no other.
. "$(dirname "$0")/e2e.sh"

cat >names.lua <<'LUA'
local nrl = require "nrl"
local page = io.open("page"):read "a"
local registry = debug.getregistry()
local wrong = 0
local function expect(ok, what) if not ok then print(what); wrong = wrong + 1 end end

-- the methods of a type: a table, or the upvalue of a function that looks there first
local function methods(type_name)
  local index = registry[type_name].__index
  if type(index) == "function" then index = select(2, debug.getupvalue(index, 1)) end
  return index
end

local known = {b = methods "nrl.batch", x = methods "nrl.tensor", run = methods "nrl.run", nrl = nrl}
for name in pairs(nrl) do expect(page:find("nrl." .. name, 1, true), "missing: nrl." .. name) end
for _, owner in ipairs{"b", "run"} do
  for name in pairs(known[owner]) do
    expect(page:find(owner .. ":" .. name .. "[({]"), "missing: " .. owner .. ":" .. name)
  end
end
local tensors = page:match "a tensor:.*"
for name in pairs(known.x) do expect(tensors:find("%f[%w_]" .. name .. "%f[^%w_]"), "missing: x:" .. name) end

for owner, name in page:gmatch "%f[%w_](%a+):([%w_]+)[({]" do
  expect(not known[owner] or known[owner][name], "there is none: " .. owner .. ":" .. name)
end
for name in page:gmatch "%f[%w_]nrl%.([%w_]+)" do expect(nrl[name] ~= nil, "there is none: nrl." .. name) end
os.exit(wrong == 0 and 0 or 1)
LUA
run 0 describe lua
mv out page
[ "$(awk '{ if (length($0) > n) n = length($0) } END { print n }' page)" -le 110 ] || is "columns of the page" more "at most 110"
run 0 run names.lua
exit $failed
