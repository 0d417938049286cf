// Streams of equinox-js under every access strategy: a counter, the same one as in the Rust half.
import { CachingStrategy, Codec, Decider, LoadOption, MemoryCache, StreamId, StreamName } from "@equinox-js/core"
import { AccessStrategy, Direction, DynamoStoreCategory, DynamoStoreClient, DynamoStoreContext, EventsContext, QueryOptions, TipOptions } from "@equinox-js/dynamo-store"

const initial = { sum: 0, times: 0 }
const evolve = (state, event) => {
  switch (event.type) {
    case "Added":
      return { sum: state.sum + event.data.by, times: state.times + 1 }
    case "Snapshotted":
      return event.data
    default:
      return state
  }
}
const fold = (state, events) => events.reduce(evolve, state)
const isOrigin = (event) => event.type === "Snapshotted"
const snapshot = (state) => ({ type: "Snapshotted", data: state })

const strategies = {
  unoptimised: AccessStrategy.Unoptimized(),
  latest: AccessStrategy.LatestKnownEvent(),
  snapshot: AccessStrategy.Snapshot(isOrigin, snapshot),
  several: AccessStrategy.MultiSnapshot(isOrigin, (state) => [{ type: "Tallied", data: state.times }, snapshot(state)]),
  rolling: AccessStrategy.RollingState(snapshot),
  // Small ones are in the state alone.
  custom: AccessStrategy.Custom(isOrigin, (events, state) => [events.filter((event) => event.data.by !== 1), [snapshot(state)]]),
}

const packed = Codec.compress(Codec.json())
// As they are, but packed ones are read too: the other side packs.
const plain = {
  encode: (event, context) => {
    const { data, ...rest } = Codec.json().encode(event, context)
    return { ...rest, data: { encoding: 0, body: Buffer.from(data) } }
  },
  decode: packed.decode,
}
// Bytes that are no JSON.
const raw = {
  encode: (event) => ({ type: event.type, data: { encoding: 0, body: Buffer.from(event.data.pad, "base64") } }),
  decode: (event) => ({ type: event.type, data: { by: 1 } }),
}

export const streams = (client) => {
  const store = new DynamoStoreClient(client)
  const caches = new Map()
  const context = ({ table, tip = {}, archive }) =>
    new DynamoStoreContext({
      client: store,
      tableName: table,
      archiveTableName: archive,
      tip: TipOptions.create(tip),
      query: QueryOptions.create({}),
    })
  const decider = (args) => {
    const { strategy, cache, compress, category = "Counter", id } = args
    if (cache && !caches.has(cache)) caches.set(cache, new MemoryCache())
    const caching = cache ? CachingStrategy.Cache(caches.get(cache)) : CachingStrategy.NoCache()
    const of = DynamoStoreCategory.create(context(args), category, compress ? packed : args.raw ? raw : plain, fold, initial, caching, strategies[strategy])
    return Decider.forStream(of, StreamId.create(id), undefined)
  }
  const load = (name) => (name ? LoadOption[name] : undefined)
  const add = (by, pad) => () => [{ type: "Added", data: pad === undefined ? { by } : { by, pad } }]

  return {
    // One decision: adds, whatever is there.
    add: async (args) => {
      await decider(args).transact(add(args.by, args.pad), load(args.load), args.attempts)
    },
    // One after the other, as fast as it goes; how often each conflict came out that it does not settle by itself.
    add_many: async (args) => {
      const escaped = {}
      for (let n = 0; n < args.count; ) {
        try {
          await decider(args).transact(add(args.by, args.pad), load(args.load), 10)
          n += 1
        } catch (error) {
          escaped[error.name] = (escaped[error.name] ?? 0) + 1
          if (!["TransactionCanceledException", "TransactionConflictException"].includes(error.name) && !error.message.includes("Concurrency violation")) throw error
        }
      }
      return escaped
    },
    // Single events of these bodies.
    add_bodies: async (args) => {
      for (const pad of args.pads) await decider(args).transact(add(1, pad), load(args.load))
    },
    state: async (args) => decider(args).query((state) => state, load(args.load)),
    read: async ({ category = "Counter", id, ...args }) => {
      const events = await new EventsContext(context(args)).read(StreamName.create(category, StreamId.create(id)), undefined, undefined, undefined, Direction.Forward)
      return events.map((event) => ({ index: Number(event.index), type: event.type, encoding: event.data.encoding, time: event.time }))
    },
  }
}
