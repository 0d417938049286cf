// equinox-js doing what it is told, on an endpoint: `node contend.mjs PEER ENDPOINT TASK…`. The tasks and the lines of JSON are those of
// bench/contest.
import { DynamoDB } from "@aws-sdk/client-dynamodb"
import { CachingStrategy, Codec, Decider, LoadOption, MemoryCache, StreamId } from "@equinox-js/core"
import { AccessStrategy, DynamoStoreCategory, DynamoStoreClient, DynamoStoreContext, EventsContext, QueryOptions, TipOptions } from "@equinox-js/dynamo-store"
import { AppendsEpoch, DynamoStoreIndexer } from "@equinox-js/dynamo-store-indexer"
import { readFileSync } from "node:fs"

const [, , , endpoint, what, ...args] = process.argv
const say = (line) => console.log(JSON.stringify(line))
const bytes = 500

// The same bodies and states as everybody's.
const filler = (n, words) => {
  let filler = ""
  for (let at = 0n; at < words; at++) {
    const mixed = ((BigInt(n) * 131n + at + 1n) * 0x9e3779b97f4a7c15n) & 0xffffffffffffffffn
    filler += mixed.toString(16).padStart(16, "0")
  }
  return filler
}
const body = (n) => {
  const head = `{"n":${n},"text":"`
  return { n, text: filler(n, 64n).slice(0, bytes - head.length - 2) }
}
const text = filler(7, 125n)

// Region, key and no retries of the SDK's, as everybody.
const connected = () =>
  new DynamoDB({ endpoint, region: "us-east-1", maxAttempts: 1, credentials: { accessKeyId: "any", secretAccessKey: "any" } })
const client = connected()
const run = process.env.FENCEPOST_BENCH_RUN ?? process.pid
const consumed = { read: 0, write: 0, requests: 0 }
// Whether a read of what is counted was eventually consistent.
let eventual = false
const writes = new Set(["PutItemCommand", "UpdateItemCommand", "DeleteItemCommand", "TransactWriteItemsCommand"])

// Bytes that DynamoDB counts for an attribute, and write units of an item.
const size = (value) => {
  if (value.S !== undefined) return Buffer.byteLength(value.S)
  if (value.N !== undefined) return Math.ceil(value.N.replace(/^-|0+$/g, "").length / 2) + 1
  if (value.B !== undefined) return value.B.length
  if (value.L !== undefined) return 3 + value.L.reduce((sum, of) => sum + 1 + size(of), 0)
  if (value.M !== undefined) return 3 + Object.entries(value.M).reduce((sum, [name, of]) => sum + 1 + name.length + size(of), 0)
  return 1
}
const units = (item = {}) => Math.max(1, Math.ceil(Object.entries(item).reduce((sum, [name, of]) => sum + name.length + size(of), 0) / 1024))
// A refused write tells no consumption and is billed: by the larger of what was offered and what is there.
const inVain = async (input, error) => {
  const there = async ({ TableName, Key }) => (Key ? units((await beside.getItem({ TableName, Key })).Item) : 1)
  const billed = async (write) => Math.max(units(write.Item), await there(write))
  if (error.name === "ConditionalCheckFailedException") return billed(input)
  if (error.name !== "TransactionCanceledException" || !error.CancellationReasons?.some((reason) => reason.Code === "ConditionalCheckFailed")) return 0
  const each = await Promise.all(input.TransactItems.map((of) => billed(of.Put ?? of.Update ?? of.Delete ?? of.ConditionCheck)))
  return 2 * each.reduce((sum, of) => sum + of, 0)
}
let beside
if (what === "units" || what === "growth") {
  beside = connected()
  client.middlewareStack.add(
    (next, context) => async (args) => {
      args.input.ReturnConsumedCapacity = "TOTAL"
      consumed.requests += 1
      const isWrite = writes.has(context.commandName)
      eventual ||= !isWrite && !args.input.ConsistentRead
      try {
        const result = await next(args)
        const capacities = [result.output.ConsumedCapacity ?? []].flat()
        consumed[isWrite ? "write" : "read"] += capacities.reduce((sum, capacity) => sum + (capacity.CapacityUnits ?? 0), 0)
        return result
      } catch (error) {
        consumed.write += await inVain(args.input, error)
        throw error
      }
    },
    { step: "initialize", name: "consumed" },
  )
}
const taken = () => {
  const units = { ...consumed }
  Object.assign(consumed, { read: 0, write: 0, requests: 0 })
  eventual = false
  return units
}

const prepare = (table) =>
  client.createTable({
    TableName: table,
    BillingMode: "PAY_PER_REQUEST",
    AttributeDefinitions: [
      { AttributeName: "p", AttributeType: "S" },
      { AttributeName: "i", AttributeType: "N" },
    ],
    KeySchema: [
      { AttributeName: "p", KeyType: "HASH" },
      { AttributeName: "i", KeyType: "RANGE" },
    ],
    StreamSpecification: { StreamEnabled: true, StreamViewType: "NEW_IMAGE" },
  })

// The state is the number of events; a snapshot has 2 KB.
const fold = (state, events) => events.reduce((count, event) => (event.type === "Snapshotted" ? event.data.count : count + 1), state)
const snapshot = AccessStrategy.Snapshot(
  (event) => event.type === "Snapshotted",
  (count) => ({ type: "Snapshotted", data: { count, state: text } }),
)
// As it ships: Brotli, where that is shorter.
const codec = Codec.compress(Codec.json())

const store = new DynamoStoreClient(client)
// A decider on a stream; cached, it knows what it has seen.
const opened = (table, id, { cached = false, cache = new MemoryCache(10), strategy = AccessStrategy.Unoptimized() } = {}) => {
  const context = new DynamoStoreContext({ client: store, tableName: table, tip: TipOptions.create({}), query: QueryOptions.create({}) })
  const caching = cached ? CachingStrategy.Cache(cache) : CachingStrategy.NoCache()
  const category = DynamoStoreCategory.create(context, "order", codec, fold, 0, caching, strategy)
  return Decider.forStream(category, StreamId.create(id), undefined)
}
// One event, by a decision on what is known; without a read where the cache may be believed.
const append = (decider) => decider.transact((count) => [{ type: "OrderPlaced", data: body(count) }], LoadOption.AnyCachedValue)
const grow = async (decider, to) => {
  for (let count = await decider.query((count) => count); count < to; count++) await append(decider)
}

const expect = (name, found, wanted) => {
  if (found !== wanted) throw new Error(`${name}: ${found} events, not ${wanted}`)
}

// Its feed. Its indexer is given the records as a Lambda is, a batch a call, and stays warm. Its source cannot be installed (npm lacks a package
// that it needs), so the two calls that it is made of are made here: the index behind a position, and the events that are named there.
const followed = async (name) => {
  const table = `equinox-js-${name}-${run}`
  await prepare(table)
  await prepare(`${table}-index`)
  const events = new EventsContext(new DynamoStoreContext({ client: store, tableName: table, tip: TipOptions.create({}), query: QueryOptions.create({}) }))
  const index = new DynamoStoreContext({
    client: store,
    tableName: `${table}-index`,
    tip: TipOptions.create({ maxBytes: 48 * 1024 }),
    query: QueryOptions.create({ maxItems: 100 }),
  })
  const indexer = new DynamoStoreIndexer(index, CachingStrategy.Cache(new MemoryCache(10)))
  const epochs = AppendsEpoch.Reader.Config.create(index)
  const decider = opened(table, "1", { cached: true })
  const ingest = async (from, to) => {
    const spans = Array.from({ length: to - from }, (_, n) => ({ p: "order-1", i: from + n, c: ["OrderPlaced"] }))
    for (let at = 0; at < spans.length; at += 100) await indexer.ingestWithoutConcurrency(0, spans.slice(at, at + 100))
  }
  await grow(decider, 945)
  await ingest(0, 945)
  const [, before] = await epochs.read(0, 0, 0n)
  await grow(decider, 977)
  taken()
  await ingest(945, 977)
  if (name === "index") return { units: taken(), note: "a Lambda reads Streams" }
  taken()
  const poll = async (from) => {
    const [, version, state] = await epochs.read(0, 0, from)
    const spans = AppendsEpoch.flatten(state.changes.flatMap(([, spans]) => spans))
    let read = 0
    for (const { p, i, c } of spans) read += (await events.read(p, i, undefined, c.length, undefined)).slice(0, c.length).length
    return [version, read]
  }
  const [now, read] = await poll(before)
  expect(name, read, 32)
  if (name === "feed") return { eventual, units: taken() }
  taken()
  expect(name, (await poll(now))[1], 0)
  const hour = { eventual, note: "asked once a second" }
  const one = taken()
  return { ...hour, units: { read: one.read * 3600, write: one.write * 3600, requests: one.requests * 3600 } }
}

// The fewest and the most units of write that an append takes, of so many.
const range = async (decider, count) => {
  const found = []
  for (let n = 0; n < count; n++) {
    taken()
    await append(decider)
    found.push(taken().write)
  }
  return [Math.min(...found), Math.max(...found)]
}

const row = async (name) => {
  // Its consumers are another package, which cannot be installed either.
  const cannot = { "two-tags": "streams only", twenty: "streams only", consumer: "a package of its own" }[name]
  if (cannot) return { cannot }
  if (name === "idle-index") return { units: taken(), note: "a Lambda" }
  if (["feed", "idle", "index"].includes(name)) return followed(name)
  const length = Number(/-(\d+)$/.exec(name)?.[1] ?? (name === "thousand" ? 1 : 100))
  const table = `equinox-js-${name.replace(/^(append|load)-/, "$1")}-${run}`
  await prepare(table)
  const decider = opened(table, "1", { cached: true, strategy: name === "snapshot" ? snapshot : undefined })
  await grow(decider, length)
  const cold = () => opened(table, "1", { strategy: name === "snapshot" ? snapshot : undefined })
  taken()
  switch (name) {
    case "thousand":
      await decider.transact((count) => Array.from({ length: 1000 }, (_, n) => ({ type: "OrderPlaced", data: body(count + n) })), LoadOption.AnyCachedValue)
      break
    case "load-100":
    case "load-10000":
    case "snapshot":
      // Strongly consistent, as everybody who can.
      expect(name, await cold().query((count) => count, LoadOption.RequireLeader), length)
      break
    case "cold":
      await cold().transact((count) => [{ type: "OrderPlaced", data: body(count) }], LoadOption.RequireLeader)
      break
    case "warm":
      await decider.transact((count) => [{ type: "OrderPlaced", data: body(count) }], LoadOption.RequireLeader)
      break
    case "conflict": {
      // Another is faster between what this one knows and its write.
      await append(opened(table, "1", { cached: true }))
      taken()
      await append(decider)
      break
    }
    default:
      await append(decider)
  }
  const found = { eventual, units: taken(), note: name === "snapshot" ? "written with every append" : null }
  if (name === "append-100") {
    const [least, most] = await range(decider, 100)
    if (least < most) found.note = `${least} to ${most} w in the next 100`
  }
  return found
}
// Why it could not be done: an item over 400 KB, or else that it failed.
const failed = (error) => {
  const said = [error.message, ...(error.CancellationReasons ?? []).map((reason) => reason.Message)].join(" ")
  return { cannot: /size/i.test(said) ? "over 400 KB an item" : `failed: ${error.name}: ${error.message}`.slice(0, 80) }
}

const memory = (name) => Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? 0) * 1024
const timed = (took, seconds, rest) => {
  took.sort((a, b) => a - b)
  const at = (share) => took[Math.floor(took.length * share)] ?? 0
  // Its decider settles conflicts unseen.
  return { done: took.length, seconds, p50: at(0.5), p99: at(0.99), conflicts: null, rest, peak: memory("VmHWM") }
}
const microseconds = () => Number(process.hrtime.bigint()) / 1e3

const tasks = {
  units: async (...rows) => {
    for (const name of rows) {
      const found = await row(name).catch(failed)
      say({ row: name, units: null, cannot: null, ...found })
    }
  },
  prepare: async (table) => {
    await prepare(table)
  },
  speed: async (scenario, writers, lasts, table, run) => {
    // One cache a process, as its users have.
    const [deciders, cache] = [[], new MemoryCache()]
    for (let number = 0; number < Number(writers); number++) {
      deciders.push(opened(table, scenario === "hot" ? run : `${run}-${number}`, { cached: true, cache }))
      await append(deciders[number])
    }
    const rest = memory("VmRSS")
    const took = []
    const began = microseconds()
    // When each began what it is at.
    const started = deciders.map(() => began)
    const work = deciders.map(async (decider, number) => {
      for (;;) {
        // As many conflicts as it takes; what it does not settle by itself is tried again.
        for (let done = false; !done; ) {
          done = await append(decider).then(
            () => true,
            (error) => {
              if (/conflict|concurrency|Transaction/i.test(`${error.name} ${error.message}`)) return false
              throw error
            },
          )
        }
        const now = microseconds()
        took.push(now - started[number])
        started[number] = now
      }
    })
    await Promise.race([...work, new Promise((over) => setTimeout(over, Number(lasts)))])
    // What is under way then is not waited for: not done, and its time so far counts, as everybody's.
    const [now, done] = [microseconds(), took.length]
    say({ ...timed([...took, ...started.map((at) => now - at)], (now - began) / 1e6, rest), done, unfinished: deciders.length })
    process.exit()
  },
  first: async (table) => {
    await append(opened(table, `first-${process.pid}`, { cached: true }))
    say(timed([0], 0, memory("VmRSS")))
  },
  growth: async (seconds, ...lengths) => {
    const table = `equinox-js-growth-${run}`
    await prepare(table)
    const decider = opened(table, "1", { cached: true })
    const until = microseconds() + Number(seconds) * 1e6
    let there = 0
    const middle = (of) => of.sort((a, b) => a[1] - b[1])[Math.floor(of.length / 2)] ?? null
    const measure = async (work) => {
      taken()
      const started = microseconds()
      await work()
      return [taken(), microseconds() - started]
    }
    const units = (found, pick) => {
      const of = (kind) => pick(...found.map(([units]) => units[kind]))
      return { read: of("read"), write: of("write"), requests: of("requests") }
    }
    for (const length of lengths.map(Number)) {
      for (; there < length; there++) {
        await append(decider)
        if (microseconds() > until) {
          const nothing = { append: null, load: null, eventual: false, least: null, most: null }
          return say({ length: there, ...nothing, says: `stopped after ${seconds} s` })
        }
      }
      const [loads, appends] = [[], []]
      for (let n = 0; n < 5; n++) {
        let found
        loads.push(await measure(async () => (found = await opened(table, "1").query((count) => count, LoadOption.RequireLeader))))
        if (found !== there) throw new Error(`${found} events, not ${there}`)
      }
      for (let n = 0; n < 25; n++, there++) appends.push(await measure(() => append(decider)))
      const [least, most] = [units(appends, Math.min), units(appends, Math.max)]
      // Its loads require the leader.
      say({ length, append: middle(appends), load: middle(loads), eventual: false, least, most, says: null })
    }
  },
}

await tasks[what](...args)
