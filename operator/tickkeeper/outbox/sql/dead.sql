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
-- whose dedup_key has a row in the outbox stays dead and is reported, as is one with a newer twin.
-- All batches of one replay share one due time, so that the rows are delivered in the order of their ids.
-- A row with an ordering_key is put behind the first of its key, if any; looking after the key (query checks) then puts
-- it first. Its id may lie between those of a run under way: outbox_next tells it by last_error without an attempt, and lets
-- it wait for the run's end. Its key's row is made, as for every row that has a key.
-- Index: the primary key, or outbox_dead_tenant; outbox_dedup for the living twin, outbox_dead_dedup for the dead one.
WITH chosen AS MATERIALIZED (
    SELECT d.* FROM {schema}.outbox_dead d
     WHERE (%(ids)s::bigint[] IS NULL OR d.id = ANY (%(ids)s::bigint[]))
       AND (%(tenant_id)s::text IS NULL OR d.tenant_id = %(tenant_id)s)
       AND (%(kind)s::text IS NULL OR d.kind = %(kind)s)
       AND (%(above)s::bigint IS NULL OR d.id > %(above)s)
     ORDER BY d.id
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
),
keyed AS (
    INSERT INTO {schema}.outbox_key (tenant_id, ordering_key)
    SELECT DISTINCT c.tenant_id, c.ordering_key FROM chosen c WHERE c.ordering_key IS NOT NULL ORDER BY 1, 2
    ON CONFLICT DO NOTHING
),
revived AS (
    INSERT INTO {schema}.outbox (id, tenant_id, kind, payload, payload_bytes, headers, dedup_key, ordering_key,
                                 max_attempts, available_at, due_at, last_error, created_at)
    SELECT c.id, c.tenant_id, c.kind, c.payload, c.payload_bytes, c.headers, c.dedup_key, c.ordering_key,
           c.max_attempts, CASE WHEN c.ordering_key IS NULL THEN %(due)s::timestamptz ELSE 'infinity' END,
           CASE WHEN c.ordering_key IS NOT NULL THEN %(due)s::timestamptz END, c.last_error, c.created_at
      FROM chosen c
     WHERE c.dedup_key IS NULL
        OR NOT EXISTS (SELECT FROM {schema}.outbox o WHERE o.tenant_id = c.tenant_id AND o.dedup_key = c.dedup_key)
       AND NOT EXISTS (
               SELECT FROM {schema}.outbox_dead n
                WHERE n.tenant_id = c.tenant_id AND n.dedup_key = c.dedup_key AND n.id > c.id
                  AND (%(ids)s::bigint[] IS NULL OR n.id = ANY (%(ids)s::bigint[]))
                  AND (%(kind)s::text IS NULL OR n.kind = %(kind)s))
     ORDER BY c.id
    ON CONFLICT DO NOTHING
    RETURNING id
),
gone AS (
    DELETE FROM {schema}.outbox_dead WHERE id = ANY (ARRAY(SELECT r.id FROM revived r))
    RETURNING id
)
SELECT c.id, g.id IS NOT NULL FROM chosen c LEFT JOIN gone g ON g.id = c.id ORDER BY c.id;


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
