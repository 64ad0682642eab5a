// graphile-worker: PEER_MODE `default`, or `batched` with the settings of its page on performance.
import { Logger, makeWorkerUtils, run, runMigrations } from 'graphile-worker';
import pg from 'pg';

const connectionString = process.env.PEER_DATABASE;
const [what, ...words] = process.argv.slice(2);
const logger = new Logger(() => () => {});
const batching = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
const worker = {
  connectionString, schema: 'graphile_worker', concurrentJobs: 24, maxPoolSize: 25,
  ...(process.env.PEER_MODE === 'batched' ? batching : {}),
};
const options = (taskList) => ({ preset: { worker }, taskList, logger, noHandleSignals: true });
const sql = async (statement, values) => {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try { return await client.query(statement, values); } finally { await client.end(); }
};
const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, Math.max(0, ms)); });

const answers = {
  async setup() {
    await runMigrations({ connectionString, logger });
    return {};
  },
  async drain(rows) {
    const payload = JSON.stringify({ pad: 'x'.repeat(89) });
    await sql(`SELECT count(*) FROM generate_series(0, ($1::int - 1) / 5000) s, LATERAL graphile_worker.add_jobs(
      array(SELECT ('row', $2::json, null, null, null, null, null, null)::graphile_worker.job_spec
              FROM generate_series(1, least(5000, $1::int - s * 5000)))) j`, [rows, payload]);
    await sql('VACUUM (ANALYZE) graphile_worker._private_jobs');
    let called = 0; let last = 0; let done;
    const all = new Promise((resolve) => { done = resolve; });
    const started = performance.now();
    const runner = await run(options({
      row: async () => {
        called += 1;
        if (called === rows) { last = performance.now(); done(); }
      },
    }));
    await all;
    await runner.stop();
    const { rows: [{ left }] } = await sql('SELECT count(*)::int AS left FROM graphile_worker._private_jobs');
    return { seconds: (last - started) / 1000, called, left };
  },
  async serve(seconds) {
    const ages = [];
    const runner = await run(options({ row: async ({ at }) => { ages.push(Date.now() - at * 1000); } }));
    await sleep(seconds * 1000);
    await runner.stop();
    return { ages };
  },
  async produce(rows, seconds) {
    const utils = await makeWorkerUtils({ connectionString, logger });
    const atOnce = Math.max(1, Math.round(rows / seconds / 100));
    const started = performance.now();
    for (let number = 0; number < Math.floor(rows / atOnce); number += 1) {
      const at = Date.now() / 1000;
      const payload = { at, pad: 'x'.repeat(60) };
      await utils.addJobs(Array.from({ length: atOnce }, () => ({ identifier: 'row', payload })));
      await sleep(started + (number + 1) * atOnce * seconds * 1000 / rows - performance.now());
    }
    await utils.release();
    return { rows: Math.floor(rows / atOnce) * atOnce, seconds: (performance.now() - started) / 1000 };
  },
};

console.log(JSON.stringify(await answers[what](...words.map(Number))));
process.exit(0);
