// A producer in Node.js with pg: the row and what it tells about in one transaction.
// DATABASE_URL=postgresql://user:password@host/database node enqueue.mjs
import pg from "pg";

/** Put one row into the outbox, within the client's transaction. Resolves to {id, outcome}; id is a string (bigint). */
export async function enqueue(client, tenantId, kind, payload, { headers = {}, dedupKey = null, onDuplicate = "keep" } = {}) {
  // As text: pg turns an array into a PostgreSQL array, and a string into no JSON at all.
  const { rows } = await client.query(
    `SELECT id, outcome FROM tickkeeper.enqueue($1, $2, $3::jsonb, headers => $4::jsonb, dedup_key => $5, on_duplicate => $6)`,
    [tenantId, kind, JSON.stringify(payload), JSON.stringify(headers), dedupKey, onDuplicate],
  );
  return rows[0];
}

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
  await client.query("BEGIN");
  await client.query("CREATE TEMP TABLE users (id bigint, email text)"); // your own table
  await client.query("INSERT INTO users VALUES (42, 'a@example.org')");
  console.log(JSON.stringify(await enqueue(client, "acme", "mail.welcome", { user: 42 }, { dedupKey: "welcome-42" })));
  console.log(JSON.stringify(await enqueue(client, "acme", "audit", ["created", 42])));
  await client.query("COMMIT");
} catch (error) {
  // 22023: a field breaks a rule, error.message says which; 23505: the dedup_key waits already (onDuplicate "error").
  await client.query("ROLLBACK");
  throw error;
} finally {
  await client.end();
}
