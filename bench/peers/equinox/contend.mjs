// equinox-js doing what it is told, on an endpoint: `node contend.mjs PEER ENDPOINT TASK…`. The tasks and the lines of JSON are those of
// bench/contest.
import { DynamoDB } from "@aws-sdk/client-dynamodb"
import { CachingStrategy, Codec, Decider, LoadOption, MemoryCache, StreamId } from "@equinox-js/core"
import { AccessStrategy, DynamoStoreCategory, DynamoStoreClient, DynamoStoreContext, QueryOptions, TipOptions } from "@equinox-js/dynamo-store"
import { readFileSync } from "node:fs"

const [, , , endpoint, what, ...args] = process.argv
const say = (line) => console.log(JSON.stringify(line))
const bytes = 500

// The same bodies as everybody's.
const body = (n) => {
  let filler = ""
  for (let at = 0n; at < 64n; at++) {
    const mixed = ((BigInt(n) * 131n + at + 1n) * 0x9e3779b97f4a7c15n) & 0xffffffffffffffffn
    filler += mixed.toString(16).padStart(16, "0")
  }
  const head = `{"n":${n},"text":"`
  return { n, text: filler.slice(0, bytes - head.length - 2) }
}

const client = new DynamoDB({ endpoint, region: "us-east-1", credentials: { accessKeyId: "any", secretAccessKey: "any" } })
const consumed = { read: 0, write: 0, requests: 0 }
const writes = new Set(["PutItemCommand", "UpdateItemCommand", "DeleteItemCommand", "TransactWriteItemsCommand"])
if (what === "units" || what === "growth") {
  client.middlewareStack.add(
    (next, context) => async (args) => {
      args.input.ReturnConsumedCapacity = "TOTAL"
      consumed.requests += 1
      const result = await next(args)
      const capacities = [result.output.ConsumedCapacity ?? []].flat()
      const units = capacities.reduce((sum, capacity) => sum + (capacity.CapacityUnits ?? 0), 0)
      consumed[writes.has(context.commandName) ? "write" : "read"] += units
      return result
    },
    { step: "initialize", name: "consumed" },
  )
}
const taken = () => {
  const units = { ...consumed }
  Object.assign(consumed, { read: 0, write: 0, requests: 0 })
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
  (count) => ({ type: "Snapshotted", data: { count, state: "s".repeat(1970) } }),
)
const codec = (() => {
  const json = Codec.json()
  const plain = (event) => ({ ...event, data: { encoding: 0, body: Buffer.from(event.data) } })
  return {
    encode: (event, context) => plain(json.encode(event, context)),
    decode: (event) => json.decode({ ...event, data: event.data?.body && Buffer.from(event.data.body).toString() }),
  }
})()

const store = new DynamoStoreClient(client)
// A decider on a stream; cached, it knows what it has seen.
const opened = (table, id, { cached = false, strategy = AccessStrategy.Unoptimized() } = {}) => {
  const context = new DynamoStoreContext({ client: store, tableName: table, tip: TipOptions.create({}), query: QueryOptions.create({}) })
  const caching = cached ? CachingStrategy.Cache(new MemoryCache()) : CachingStrategy.NoCache()
  const category = DynamoStoreCategory.create(context, "order", codec, fold, 0, caching, strategy)
  return Decider.forStream(category, StreamId.create(id), undefined)
}
// One event, by a decision on what is known; without a read where the cache may be believed.
const append = (decider) => decider.transact((count) => [{ type: "OrderPlaced", data: body(count) }], LoadOption.AnyCachedValue)
const grow = async (decider, to) => {
  for (let count = await decider.query((count) => count); count < to; count++) await append(decider)
}

const row = async (name, run) => {
  const cannot = { "two-tags": "streams only", twenty: "streams only", thousand: undefined, feed: "by an indexer, not measured", idle: "by an indexer, not measured" }[name]
  if (cannot) return { cannot }
  const length = Number(/-(\d+)$/.exec(name)?.[1] ?? (name === "thousand" ? 1 : 100))
  const table = `equinox-js-${name.replace(/^(append|load)-/, "$1")}-${run}`
  await prepare(table)
  const decider = opened(table, "1", { cached: true, strategy: name === "snapshot" ? snapshot : undefined })
  await grow(decider, length)
  const cold = () => opened(table, "1", { strategy: name === "snapshot" ? snapshot : undefined })
  const expect = (found, wanted) => {
    if (found !== wanted) throw new Error(`${name}: ${found} events, not ${wanted}`)
  }
  taken()
  switch (name) {
    case "thousand":
      await decider.transact((count) => Array.from({ length: 1000 }, (_, n) => ({ type: "OrderPlaced", data: body(count + n) })), LoadOption.AnyCachedValue)
      break
    case "load-100":
    case "load-10000":
    case "snapshot":
      expect(await cold().query((count) => count), length)
      break
    case "cold":
      await cold().transact((count) => [{ type: "OrderPlaced", data: body(count) }])
      break
    case "warm":
      await decider.transact((count) => [{ type: "OrderPlaced", data: body(count) }])
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
  return { units: taken() }
}

const memory = (name) => Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? 0) * 1024
const timed = (took, seconds, rest) => {
  took.sort((a, b) => a - b)
  const at = (share) => took[Math.floor(took.length * share)] ?? 0
  return { done: took.length, seconds, p50: at(0.5), p99: at(0.99), conflicts: 0, rest, peak: memory("VmHWM") }
}
const microseconds = () => Number(process.hrtime.bigint()) / 1e3

const tasks = {
  units: async (...rows) => {
    for (const name of rows) {
      const found = await row(name, process.pid).catch((error) => ({ cannot: `${error.name}: ${error.message}`.slice(0, 60) }))
      say({ row: name, units: null, cannot: null, ...found })
    }
  },
  prepare: async (table) => {
    await prepare(table)
  },
  speed: async (scenario, writers, lasts, table, run) => {
    const deciders = []
    for (let number = 0; number < Number(writers); number++) {
      deciders.push(opened(table, scenario === "hot" ? run : `${run}-${number}`, { cached: true }))
      await append(deciders[number])
    }
    const rest = memory("VmRSS")
    const took = []
    const began = microseconds()
    const until = began + Number(lasts) * 1e3
    await Promise.all(
      deciders.map(async (decider) => {
        for (let started = microseconds(); started < until; ) {
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
          took.push(now - started)
          started = now
        }
      }),
    )
    say(timed(took, (microseconds() - began) / 1e6, rest))
  },
  first: async (table) => {
    await append(opened(table, `first-${process.pid}`, { cached: true }))
    say(timed([0], 0, memory("VmRSS")))
  },
  growth: async (seconds, ...lengths) => {
    const table = `equinox-js-growth-${process.pid}`
    await prepare(table)
    const decider = opened(table, "1", { cached: true })
    const until = microseconds() + Math.min(Number(seconds), 180) * 1e6
    let there = 0
    const middle = (of) => of.sort((a, b) => a[1] - b[1])[Math.floor(of.length / 2)] ?? null
    const measure = async (work) => {
      taken()
      const started = microseconds()
      await work()
      return [taken(), microseconds() - started]
    }
    for (const length of lengths.map(Number).filter((length) => length <= 10000)) {
      for (; there < length; there++) {
        await append(decider)
        if (microseconds() > until) return say({ length: there, append: null, load: null, says: `stopped after ${seconds} s` })
      }
      const [loads, appends] = [[], []]
      for (let n = 0; n < 5; n++) loads.push(await measure(() => opened(table, "1").query((count) => count)))
      for (let n = 0; n < 5; n++, there++) appends.push(await measure(() => append(decider)))
      say({ length, append: middle(appends), load: middle(loads), says: null })
    }
  },
}

await tasks[what](...args)
