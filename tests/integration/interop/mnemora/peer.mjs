// A worker as mnemora's users have it: a BullMQ worker whose job is one runtime.tick() of @mnemora/core on the outbox of
// @mnemora/postgres. What tick() hands to memory store, vector store and model is a stand-in: the effect of a row is a
// line "<name> <memoryId>" in the file EFFECTS.
//
// From the environment: NAME, EFFECTS, REDIS_URL, DATABASE_URL, LEASE_MS, WORK_MS (of one row), CLOCK_AHEAD_MS.
// Prints a line of JSON for each tick that claimed something.
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "bullmq";
import { Redis } from "ioredis";
import { createRuntime } from "@mnemora/core";
import { createPostgresClient, PostgresOutboxStore } from "@mnemora/postgres";

const { NAME, EFFECTS, REDIS_URL, DATABASE_URL } = process.env;
const number = (name) => Number(process.env[name] ?? 0);

const { db, pool } = createPostgresClient(DATABASE_URL);
pool.on("error", (error) => console.error(error.message));
const runtime = createRuntime({
  clock: { now: () => new Date(Date.now() + number("CLOCK_AHEAD_MS")) },
  outboxStore: new PostgresOutboxStore(db),
  memoryStore: {
    get: async (_ctx, id) => ({ id, content: id }),
    setEmbeddingStatus: async () => {},
  },
  vectorStore: { upsert: async () => {} },
  embeddingProvider: {
    space: { id: "none", dimensions: 1 },
    embed: async (_ctx, [content]) => {
      appendFileSync(EFFECTS, `${NAME} ${content}\n`);
      await sleep(number("WORK_MS"));
      return [[1]];
    },
  },
});

const connection = new Redis(REDIS_URL, { maxRetriesPerRequest: null });
connection.on("error", (error) => console.error(error.message));
const worker = new Worker(
  "ticks",
  async (job) => {
    const { tenantId } = job.data;
    const result = await runtime.tick({ tenantId }, { leaseMs: number("LEASE_MS"), claimedBy: NAME });
    if (result.processed || result.failed || result.leaseConflicts.length) {
      console.log(JSON.stringify({ event: "tick", ...result }));
    }
    return result;
  },
  { connection, drainDelay: 1 },
);
worker.on("failed", (_job, error) => console.log(JSON.stringify({ event: "failed", error: error.message })));
worker.on("error", (error) => console.error(error.message));
await worker.waitUntilReady();
console.log(JSON.stringify({ event: "ready" }));
