// A stock BullMQ worker for several queues: takes every tick and does nothing with it, but remembers when it came.
// One line of JSON on standard input is a question, one on standard output its answer; the end of input ends it.
//   {"do": "mark"}    forget what was seen; ticks count from now on
//   {"do": "report"}  -> {since, until, ticks, errors, first: {"queue/id": [slot, at]}, last: {"queue/id": at}}
// Times are epoch ms; slot is when the first tick after the mark was due.
import { createInterface } from 'node:readline';
import { Worker } from 'bullmq';
import IORedis from 'ioredis';

const settings = JSON.parse(process.env.WORKER_SETTINGS);
let since = Date.now();
let ticks = 0;
let errors = 0;
let first = new Map();
let last = new Map();

function seen(queue, job) {
  const cut = job.id.lastIndexOf(':');
  const key = `${queue}/${job.id.slice('repeat:'.length, cut)}`;
  const now = Date.now();
  ticks += 1;
  last.set(key, now);
  if (!first.has(key)) first.set(key, [Number(job.id.slice(cut + 1)), now]);
}

const workers = settings.queues.map((queue) => {
  const connection = new IORedis(settings.url, { maxRetriesPerRequest: null });
  connection.on('error', () => { errors += 1; });
  const worker = new Worker(queue, async (job) => seen(queue, job), {
    connection,
    prefix: settings.prefix,
    concurrency: settings.concurrency,
  });
  worker.on('error', () => { errors += 1; });
  return worker;
});

const answers = {
  mark() {
    since = Date.now();
    ticks = errors = 0;
    first = new Map();
    last = new Map();
    return {};
  },
  report() {
    const found = { first: Object.fromEntries(first), last: Object.fromEntries(last) };
    return { since, until: Date.now(), ticks, errors, ...found };
  },
};

const input = createInterface({ input: process.stdin });
input.on('line', (line) => console.log(JSON.stringify(answers[JSON.parse(line).do]())));
input.on('close', () => process.exit(0));
await Promise.all(workers.map((worker) => worker.waitUntilReady()));
