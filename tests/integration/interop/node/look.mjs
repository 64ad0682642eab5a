// What BullMQ's Node side sees of a queue: its schedulers and its finished jobs, as JSON.
import { Queue } from "bullmq";
import { connect, prefix, queueName } from "./connection.mjs";

const connection = connect();
const queue = new Queue(queueName, { connection, prefix });
const jobs = async (state) =>
  (await queue.getJobs([state])).map(({ id, name, data, returnvalue, failedReason }) => ({
    id,
    name,
    data,
    returnvalue,
    failedReason,
  }));
console.log(
  JSON.stringify({
    schedulers: await queue.getJobSchedulers(),
    completed: await jobs("completed"),
    failed: await jobs("failed"),
  }),
);
await queue.close();
connection.disconnect();
