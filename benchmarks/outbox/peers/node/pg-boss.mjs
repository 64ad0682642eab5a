// pg-boss: its own fetch and complete in a loop. Its work() waits half a second between batches at the least.
import pg from 'pg';
import PgBoss from 'pg-boss';

const connectionString = process.env.PEER_DATABASE;
const [what, ...words] = process.argv.slice(2);
const boss = new PgBoss({ connectionString, supervise: false, schedule: false, max: 10 });
boss.on('error', () => {});
const batchSize = 500;
const lanes = 4;
await boss.start();

const answers = {
  async setup() {
    await boss.createQueue('row');
    return {};
  },
  async drain(rows) {
    const data = { pad: 'x'.repeat(89) };
    for (let start = 0; start < rows; start += 5000) {
      await boss.insert(Array.from({ length: Math.min(5000, rows - start) }, () => ({ name: 'row', data })));
    }
    const client = new pg.Client({ connectionString });
    await client.connect();
    await client.query('VACUUM (ANALYZE) pgboss.job');
    let called = 0; let last = 0;
    const handle = async () => {
      called += 1;
      if (called === rows) last = performance.now();
    };
    const lane = async () => {
      for (;;) {
        const jobs = await boss.fetch('row', { batchSize });
        if (!jobs || jobs.length === 0) return;
        for (const job of jobs) await handle(job);
        await boss.complete('row', jobs.map((job) => job.id));
      }
    };
    const started = performance.now();
    await Promise.all(Array.from({ length: lanes }, lane));
    const { rows: [{ left }] } = await client.query(
      "SELECT count(*)::int AS left FROM pgboss.job WHERE name = 'row' AND state <> 'completed'",
    );
    await client.query("DELETE FROM pgboss.job WHERE name = 'row'");
    return { seconds: (last - started) / 1000, called, left };
  },
};

console.log(JSON.stringify(await answers[what](...words.map(Number))));
process.exit(0);
