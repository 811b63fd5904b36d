-- What each client of a load on a server sends; run by wrk with one thread, and so one client, a connection.
--
--   wrk -t CLIENTS -c CLIENTS -d SECONDSs -s load.lua URL -- LOAD HEAD TABLES
--
-- The loads: native-own and nessie-own commit to a table of the client's own; native-one commits to one table of
-- all clients, after a look at the head whenever it was in conflict; native-read and nessie-read read a table.
-- TABLES is how the names of the tables begin: a client does not know those that others made before it.
-- A committing client says which commit it read: the last one that it knows of. At the end the counts are
-- printed as one line of JSON.

local clients = {}

function setup(thread)
  thread:set("client", #clients)
  table.insert(clients, thread)
end

function init(args)
  load, head, tables = args[1], args[2], args[3]
  number, content_id, looks = 0, nil, false
  done_commits, conflicts, refused, odd_status = 0, 0, 0, 0
  math.randomseed(client * 7919 + os.time())
  run = string.format("%08x", math.random(0, 0x7fffffff))
end

local function location(name)
  return string.format("s3://lake/warehouse/%s/metadata/%05d.metadata.json", name, number)
end

local function native(name)
  local body = string.format(
    '{"branch":"main","said":{"message":"hourly load","authors":["etl"]},"base":"%s","operations":[' ..
    '{"operation":"put","key":"%s","content":{"type":"ICEBERG_TABLE","metadata_location":"%s","snapshot_id":%d}}]}',
    head, name, location(name), number)
  return wrk.format("POST", "/api/penstock/v1/commits", {
    ["Content-Type"] = "application/json",
    ["Idempotency-Key"] = string.format("%s-%d-%d", run, client, number),
  }, body)
end

local function nessie(name)
  local id = content_id and string.format('"id":"%s",', content_id) or ""
  local body = string.format(
    '{"commitMeta":{"message":"hourly load","authors":["etl"]},"operations":[{"type":"PUT","key":{"elements":["%s"]},' ..
    '"content":{"type":"ICEBERG_TABLE",%s"metadataLocation":"%s","snapshotId":%d,"schemaId":0,"specId":0,"sortOrderId":0}}]}',
    name, id, location(name), number)
  return wrk.format("POST", "/api/v2/trees/main@" .. head .. "/history/commit",
    { ["Content-Type"] = "application/json" }, body)
end

function request()
  number = number + 1
  local own = string.format("%s%04d", tables, client)
  if looks then
    return wrk.format("GET", "/api/penstock/v1/resolve?revision=main")
  elseif load == "native-own" then
    return native(own)
  elseif load == "native-one" then
    return native(tables)
  elseif load == "nessie-own" then
    return nessie(own)
  elseif load == "native-read" then
    return wrk.format("GET", "/api/penstock/v1/contents?at=main&key=" .. own)
  end
  return wrk.format("GET", "/api/v2/trees/main/contents/" .. own)
end

function response(status, headers, body)
  if status == 409 then
    conflicts = conflicts + 1
    looks = load == "native-one"
  elseif status ~= 200 then
    refused, odd_status = refused + 1, status
  elseif looks then
    head, looks = string.match(body, '"commit":"(%x+)"'), false
  else
    done_commits = done_commits + 1
    if load == "native-own" or load == "native-one" then
      head = string.match(body, '"id":"(%x+)"')
    elseif load == "nessie-own" then
      head = string.match(body, '"hash"%s*:%s*"(%x+)"')
      content_id = content_id or string.match(body, '"contentId"%s*:%s*"([%x-]+)"')
    end
  end
end

function done(summary, latency, requests)
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
