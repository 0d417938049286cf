// The index of equinox-js: its indexer's writer, which closes epochs early here, and the readers that its source is made of.
import { CachingStrategy, MemoryCache } from "@equinox-js/core"
import { DynamoStoreClient, DynamoStoreContext, QueryOptions, TipOptions } from "@equinox-js/dynamo-store"
import { AppendsEpoch, AppendsIndex, DynamoStoreIndexer } from "@equinox-js/dynamo-store-indexer"

export const index = (client) => {
  const store = new DynamoStoreClient(client)
  const context = ({ table }) =>
    new DynamoStoreContext({
      client: store,
      tableName: `${table}-index`,
      archiveTableName: undefined,
      tip: TipOptions.create({ maxBytes: 48 * 1024 }),
      query: QueryOptions.create({ maxItems: 100 }),
    })

  return {
    // A writer that begins anew, as a function that is started cold.
    ingest: async (args) => {
      const cache = CachingStrategy.Cache(new MemoryCache(10))
      await new DynamoStoreIndexer(context(args), cache, args.cutoff).ingestWithoutConcurrency(args.partition ?? 0, args.spans)
    },
    // The partitions that a source would follow.
    partitions: async (args) => (await AppendsIndex.Reader.create(context(args)).readKnownPartitions()).map(Number).sort(),
    // The same as they come, and the epoch that its writer would begin with: what it makes of its own snapshot.
    known: async (args) => ({
      partitions: await AppendsIndex.Reader.create(context(args)).readKnownPartitions(),
      epoch: await AppendsIndex.Service.create(context(args)).readIngestionEpochId(args.partition ?? 0),
    }),
    // A partition from its beginning, entry by entry and then all at once, as a source does; spans by stream, joined as it joins them.
    spans: async (args) => {
      const reader = AppendsEpoch.Reader.Config.create(context(args))
      const spans = []
      let epoch = 0
      for (let at = 0n; ; ) {
        const [, version, state] = await reader.read(args.partition ?? 0, epoch, at)
        const read = state.changes.flatMap(([, spans]) => spans)
        AppendsEpoch.flatten(read)
        spans.push(...read)
        if (!state.closed) return { epochs: epoch + 1, version: Number(version), spans }
        ;[epoch, at] = [epoch + 1, 0n]
      }
    },
  }
}
