// A worker as an application has it: takes ticks, prints one line of JSON each, closes on SIGTERM.
import { Worker } from "bullmq";
import { connect, prefix, queueName } from "./connection.mjs";

const connection = connect();
const worker = new Worker(
  queueName,
  async (job) => {
    console.log(JSON.stringify({ event: "tick", id: job.id, name: job.name, data: job.data }));
    return { worker: "node", tenantId: job.data.tenantId ?? null };
  },
  { connection, prefix, drainDelay: 1 },
);
worker.on("failed", (job, error) => console.log(JSON.stringify({ event: "failed", id: job?.id, error: error.message })));
worker.on("error", (error) => console.error(error.message));
await worker.waitUntilReady();
console.log(JSON.stringify({ event: "ready" }));

process.once("SIGTERM", async () => {
  await worker.close();
  connection.disconnect();
  console.log(JSON.stringify({ event: "closed" }));
});
