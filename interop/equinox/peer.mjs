// equinox-js, driven line by line: a command of JSON on stdin, its answer on stdout. The tests are in Rust, in
// crates/fencepost/tests/equinox/interop.rs; `./run` runs them.
import { DynamoDB } from "@aws-sdk/client-dynamodb"
import { createInterface } from "node:readline"
import { index } from "./index.mjs"
import { streams } from "./streams.mjs"

const client = new DynamoDB({
  endpoint: process.env.ENDPOINT,
  region: "us-east-1",
  credentials: { accessKeyId: "any", secretAccessKey: "any" },
  maxAttempts: 1,
})

// What every request consumed, whoever sent it.
const consumed = { read: 0, write: 0, requests: 0 }
const writes = new Set(["PutItemCommand", "UpdateItemCommand", "DeleteItemCommand", "TransactWriteItemsCommand"])
client.middlewareStack.add(
  (next, context) => async (args) => {
    args.input.ReturnConsumedCapacity = "TOTAL"
    const result = await next(args)
    const capacities = [result.output.ConsumedCapacity ?? []].flat()
    const units = capacities.reduce((sum, capacity) => sum + (capacity.CapacityUnits ?? 0), 0)
    consumed[writes.has(context.commandName) ? "write" : "read"] += units
    consumed.requests += 1
    return result
  },
  { step: "initialize", name: "consumed" },
)

const commands = {
  ...streams(client),
  ...index(client),
  // What was consumed since the last time.
  units: async () => {
    const units = { ...consumed }
    Object.assign(consumed, { read: 0, write: 0, requests: 0 })
    return units
  },
}

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...args } = JSON.parse(line)
  try {
    const value = await commands[command](args)
    console.log(JSON.stringify({ value: value ?? null }))
  } catch (error) {
    console.log(JSON.stringify({ error: error.name ?? "Error", message: String(error.message) }))
  }
}
