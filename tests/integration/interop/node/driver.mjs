// The tick driver that applications bring along, in a few lines: each replica registers the clock when it starts and
// takes it away when it stops, from all the others too.
//
//   node driver.mjs start <jobName> <everyMs>
//   node driver.mjs stop <jobName>
//   node driver.mjs -            the same, a line each, from standard input
//
// Answers each command with a line of JSON.
import { createInterface } from "node:readline";
import { Queue } from "bullmq";
import { connect, prefix, queueName } from "./connection.mjs";

class Driver {
  constructor(queue) {
    this.queue = queue;
  }

  // The job's name is the scheduler's id: two tenants on one queue with one name share one clock.
  async start(jobName, every) {
    const job = await this.queue.upsertJobScheduler(jobName, { every }, { name: jobName });
    return { jobId: job?.id };
  }

  async stop(jobName) {
    return { removed: await this.queue.removeJobScheduler(jobName) };
  }
}

async function obey(driver, [command, jobName, every]) {
  if (!jobName || !["start", "stop"].includes(command) || (command === "start" && !(Number(every) > 0))) {
    throw new Error(`cannot understand: ${[command, jobName, every].join(" ")}`);
  }
  const answer = command === "start" ? await driver.start(jobName, Number(every)) : await driver.stop(jobName);
  console.log(JSON.stringify({ command, jobName, ...answer }));
}

const connection = connect();
const queue = new Queue(queueName, { connection, prefix });
queue.on("error", (error) => console.error(error.message));
const driver = new Driver(queue);
try {
  if (process.argv[2] === "-") {
    for await (const line of createInterface({ input: process.stdin })) {
      if (line.trim()) await obey(driver, line.trim().split(/\s+/));
    }
  } else {
    await obey(driver, process.argv.slice(2));
  }
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await queue.close();
  connection.disconnect();
}
