-- The dead letters.

-- name: dead
-- Dead rows without their payloads, latest death first.
-- Index: outbox_dead_age (backwards), or outbox_dead_tenant for a tenant with few rows among many.
SELECT d.id, d.tenant_id, d.kind, d.attempts, d.max_attempts, d.reason, d.last_error, d.created_at, d.died_at, d.dedup_key,
       d.ordering_key, EXISTS (SELECT FROM {schema}.outbox_block b WHERE b.id = d.id)
  FROM {schema}.outbox_dead d
 WHERE (%(tenant_id)s::text IS NULL OR d.tenant_id = %(tenant_id)s)
   AND (%(kind)s::text IS NULL OR d.kind = %(kind)s)
 ORDER BY d.died_at DESC, d.id DESC
 LIMIT %(limit)s;


-- name: database_time
SELECT clock_timestamp();


-- name: replay
-- One batch of dead rows goes back as if new, with its own id and all its attempts, oldest first, so that those of one
-- ordering_key keep their order however many there are. Of several chosen ones with one dedup_key the newest goes. A row
-- whose dedup_key has a row in the outbox stays dead and is reported, as is one with a newer twin. Unless it blocks its
-- ordering_key and the twin is of that key: the twin waits for it. Both go then, and the newer one holds the dedup_key.
-- All batches of one replay share one due time, so that the rows are delivered in the order of their ids.
-- A row with an ordering_key is put behind the first of its key, if any; looking after the key (query checks) then puts
-- it first. Its id may lie between those of a run under way: outbox_next tells it by last_error without an attempt, and lets
-- it wait for the run's end. Its key's row is made, as for every row that has a key.
-- Both the key's row and the row itself may wait for a producer's open transaction, and producers for this one: for patience
-- at most, which is less than deadlock_timeout, so that no producer is ended for it. Then all of the batch is undone, with
-- lock_not_available (55P03). Rows of the keys held_tenants and held_keys, with hold all, are named only.
-- Index: the primary key, or outbox_dead_tenant; outbox_dedup for the living twin, outbox_dead_dedup for the dead one.
WITH patience AS MATERIALIZED (
    -- Until this transaction ends, which in autocommit is this statement: fit for a pooler. Asked before any row is chosen.
    SELECT set_config('lock_timeout', %(patience)s::text, true) IS NOT NULL AS given
),
held AS MATERIALIZED (
    SELECT h.tenant_id, h.ordering_key
      FROM unnest(%(held_tenants)s::text[], %(held_keys)s::text[]) AS h (tenant_id, ordering_key)
),
chosen AS MATERIALIZED (
    SELECT d.* FROM {schema}.outbox_dead d
     WHERE (SELECT p.given FROM patience p)
       AND (%(ids)s::bigint[] IS NULL OR d.id = ANY (%(ids)s::bigint[]))
       AND (%(tenant_id)s::text IS NULL OR d.tenant_id = %(tenant_id)s)
       AND (%(kind)s::text IS NULL OR d.kind = %(kind)s)
       AND (%(above)s::bigint IS NULL OR d.id > %(above)s)
     ORDER BY d.id
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
),
judged AS MATERIALIZED (
    SELECT c.id, %(hold)s OR coalesce((c.tenant_id, c.ordering_key) IN (SELECT h.tenant_id, h.ordering_key FROM held h), false)
                 AS waits,
           CASE WHEN EXISTS (SELECT FROM {schema}.outbox_block b WHERE b.id = c.id) THEN c.ordering_key END AS blocked_key
      FROM chosen c
),
twins AS MATERIALIZED (
    -- Living ones, and newer ones that are chosen too. frees: all of them wait for the row.
    SELECT j.id, bool_and(t.ordering_key IS NOT DISTINCT FROM j.blocked_key AND j.blocked_key IS NOT NULL) AS frees
      FROM judged j
      JOIN chosen c ON c.id = j.id
     CROSS JOIN LATERAL (
        SELECT o.ordering_key FROM {schema}.outbox o WHERE o.tenant_id = c.tenant_id AND o.dedup_key = c.dedup_key
        UNION ALL
        SELECT n.ordering_key FROM {schema}.outbox_dead n
         WHERE n.tenant_id = c.tenant_id AND n.dedup_key = c.dedup_key AND n.id > c.id
           AND (%(ids)s::bigint[] IS NULL OR n.id = ANY (%(ids)s::bigint[]))
           AND (%(kind)s::text IS NULL OR n.kind = %(kind)s)
     ) t
     WHERE NOT j.waits
     GROUP BY j.id
),
going AS MATERIALIZED (
    SELECT c.*, t.id IS NOT NULL AS frees
      FROM chosen c
      JOIN judged j ON j.id = c.id AND NOT j.waits
      LEFT JOIN twins t ON t.id = c.id
     WHERE t.frees IS NOT FALSE
),
keyed AS (
    INSERT INTO {schema}.outbox_key (tenant_id, ordering_key)
    SELECT DISTINCT g.tenant_id, g.ordering_key FROM going g WHERE g.ordering_key IS NOT NULL ORDER BY 1, 2
    ON CONFLICT DO NOTHING
),
revived AS (
    INSERT INTO {schema}.outbox (id, tenant_id, kind, payload, payload_bytes, headers, dedup_key, dedup_freed, ordering_key,
                                 max_attempts, available_at, due_at, last_error, created_at)
    SELECT g.id, g.tenant_id, g.kind, g.payload, g.payload_bytes, g.headers, g.dedup_key,
           CASE WHEN g.frees THEN g.id ELSE 0 END, g.ordering_key,
           g.max_attempts, CASE WHEN g.ordering_key IS NULL THEN %(due)s::timestamptz ELSE 'infinity' END,
           CASE WHEN g.ordering_key IS NOT NULL THEN %(due)s::timestamptz END, g.last_error, g.created_at
      FROM going g
     ORDER BY g.id
    ON CONFLICT DO NOTHING
    RETURNING id
),
gone AS (
    DELETE FROM {schema}.outbox_dead WHERE id = ANY (ARRAY(SELECT r.id FROM revived r))
    RETURNING id
)
SELECT j.id, g.id IS NOT NULL, j.waits, c.tenant_id, c.ordering_key
  FROM judged j JOIN chosen c ON c.id = j.id LEFT JOIN gone g ON g.id = j.id
 ORDER BY j.id;


-- name: purge
-- One batch of dead rows is deleted for good, oldest death first. The next begins behind the last row of this one: what a
-- filter leaves is passed over once, and not by every batch.
-- Index: outbox_dead_age, or outbox_dead_tenant for a tenant with few rows among many.
WITH chosen AS MATERIALIZED (
    SELECT d.id, d.died_at FROM {schema}.outbox_dead d
     WHERE (%(ids)s::bigint[] IS NULL OR d.id = ANY (%(ids)s::bigint[]))
       AND (%(tenant_id)s::text IS NULL OR d.tenant_id = %(tenant_id)s)
       AND (%(kind)s::text IS NULL OR d.kind = %(kind)s)
       AND d.died_at <= statement_timestamp() - make_interval(secs => %(age)s)
       AND (%(last_death)s::timestamptz IS NULL OR (d.died_at, d.id) > (%(last_death)s, %(last_id)s::bigint))
     ORDER BY d.died_at, d.id
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM {schema}.outbox_dead WHERE id = ANY (ARRAY(SELECT c.id FROM chosen c))
    RETURNING id
)
SELECT (SELECT count(*) FROM gone), c.died_at, c.id FROM chosen c ORDER BY c.died_at DESC, c.id DESC LIMIT 1;
