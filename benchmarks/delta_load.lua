-- What each client of a load on a server of Delta tables sends: appends of one file to one table of all clients.
--
--   wrk -t CLIENTS -c CLIENTS -d SECONDSs -s delta_load.lua URL -- TABLE LINE
--
-- LINE is an action as it stands in a string of JSON, with NUMBER where each commit has a number of its own.
-- At the end the counts are printed as one line of JSON.

local clients = {}

function setup(thread)
  thread:set("client", #clients)
  table.insert(clients, thread)
end

function init(args)
  name, line = args[1], args[2]
  number, done_commits, conflicts, refused, odd_status = 0, 0, 0, 0, 0
  math.randomseed(client * 7919 + os.time())
  run = string.format("%08x", math.random(0, 0x7fffffff))
end

function request()
  number = number + 1
  local own = string.gsub(line, "NUMBER", string.format("%s-%d-%d", run, client, number))
  local body = string.format('{"branch":"main","tables":[{"key":"%s","actions":"%s"}]}', name, own)
  return wrk.format("POST", "/api/penstock/v1/delta/commits", {
    ["Content-Type"] = "application/json",
    ["Idempotency-Key"] = string.format("%s-%d-%d", run, client, number),
  }, body)
end

function response(status)
  if status == 200 then
    done_commits = done_commits + 1
  elseif status == 409 then
    conflicts = conflicts + 1
  else
    refused, odd_status = refused + 1, status
  end
end

function done(summary, latency)
  local total = { done = 0, conflicts = 0, refused = 0 }
  local status = 0
  for _, thread in ipairs(clients) do
    total.done = total.done + thread:get("done_commits")
    total.conflicts = total.conflicts + thread:get("conflicts")
    total.refused = total.refused + thread:get("refused")
    status = math.max(status, thread:get("odd_status"))
  end
  local broken = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  io.write(string.format(
    '{"seconds":%.4f,"done":%d,"conflicts":%d,"refused":%d,"odd_status":%d,"broken":%d,"p50_ms":%.3f,"p99_ms":%.3f,"max_ms":%.3f}\n',
    summary.duration / 1e6, total.done, total.conflicts, total.refused, status, broken,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000, latency.max / 1000))
end
