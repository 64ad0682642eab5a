-- Reading, for workers, people and gauges.

-- name: kinds
-- The kinds that a tenant has rows of, whatever their state: a loose scan, one index descent per kind.
-- Index: outbox_due.
WITH RECURSIVE found (kind) AS (
    (SELECT o.kind FROM {schema}.outbox o WHERE o.tenant_id = %(tenant_id)s ORDER BY o.kind LIMIT 1)
    UNION ALL
    SELECT (SELECT o.kind FROM {schema}.outbox o
             WHERE o.tenant_id = %(tenant_id)s AND o.kind > f.kind
             ORDER BY o.kind LIMIT 1)
      FROM found f WHERE f.kind IS NOT NULL
)
SELECT f.kind FROM found f WHERE f.kind IS NOT NULL;


-- name: oldest
-- Seconds since the oldest ready row of a tenant became due, and how many are ready, counted up to a bound.
-- Index: outbox_due.
WITH RECURSIVE found (kind) AS (
    (SELECT o.kind FROM {schema}.outbox o WHERE o.tenant_id = %(tenant_id)s ORDER BY o.kind LIMIT 1)
    UNION ALL
    SELECT (SELECT o.kind FROM {schema}.outbox o
             WHERE o.tenant_id = %(tenant_id)s AND o.kind > f.kind
             ORDER BY o.kind LIMIT 1)
      FROM found f WHERE f.kind IS NOT NULL
),
kinds AS MATERIALIZED (
    SELECT f.kind FROM found f WHERE f.kind IS NOT NULL
),
heads AS (
    SELECT h.available_at FROM kinds k
     CROSS JOIN LATERAL (
        SELECT o.available_at FROM {schema}.outbox o
         WHERE o.tenant_id = %(tenant_id)s AND o.kind = k.kind
           AND o.available_at <= statement_timestamp()
           AND coalesce(o.lease_until, '-infinity') <= statement_timestamp()
         ORDER BY o.available_at, o.id
         LIMIT 1
     ) h
),
ready AS (
    SELECT FROM kinds k
     CROSS JOIN LATERAL (
        SELECT FROM {schema}.outbox o
         WHERE o.tenant_id = %(tenant_id)s AND o.kind = k.kind
           AND o.available_at <= statement_timestamp()
           AND coalesce(o.lease_until, '-infinity') <= statement_timestamp()
         ORDER BY o.available_at, o.id -- else the whole kind's index is read before the bound applies
         LIMIT %(bound)s
     ) r
     LIMIT %(bound)s
)
SELECT (SELECT extract(epoch FROM clock_timestamp() - min(h.available_at))::float8 FROM heads h),
       (SELECT count(*) FROM ready);


-- name: stats
-- Rows per tenant and kind, by state. Reads both tables whole: for people, not for a scrape.
WITH live AS (
    SELECT o.tenant_id, o.kind,
           count(*) FILTER (WHERE o.lease_until > statement_timestamp()) AS leased,
           count(*) FILTER (WHERE o.available_at > statement_timestamp() AND o.due_at IS NULL
                              AND coalesce(o.lease_until, '-infinity') <= statement_timestamp()) AS scheduled,
           count(*) FILTER (WHERE o.available_at <= statement_timestamp()
                              AND coalesce(o.lease_until, '-infinity') <= statement_timestamp()) AS ready,
           min(o.available_at) FILTER (WHERE o.available_at <= statement_timestamp()
                              AND coalesce(o.lease_until, '-infinity') <= statement_timestamp()) AS oldest,
           count(*) FILTER (WHERE o.due_at IS NOT NULL
                              AND coalesce(o.lease_until, '-infinity') <= statement_timestamp()) AS behind
      FROM {schema}.outbox o
     WHERE %(tenant_id)s::text IS NULL OR o.tenant_id = %(tenant_id)s
     GROUP BY o.tenant_id, o.kind
),
dead AS (
    SELECT d.tenant_id, d.kind, count(*) AS dead FROM {schema}.outbox_dead d
     WHERE %(tenant_id)s::text IS NULL OR d.tenant_id = %(tenant_id)s
     GROUP BY d.tenant_id, d.kind
)
SELECT tenant_id, kind, coalesce(l.ready, 0), coalesce(l.leased, 0), coalesce(l.scheduled, 0), coalesce(d.dead, 0),
       extract(epoch FROM clock_timestamp() - l.oldest)::float8, coalesce(l.behind, 0)
  FROM live l FULL JOIN dead d USING (tenant_id, kind)
 ORDER BY tenant_id, kind;


-- name: show
-- One row, living or dead.
-- Index: the primary keys.
SELECT o.id, o.tenant_id, o.kind,
       CASE WHEN o.lease_until > statement_timestamp() THEN 'leased'
            WHEN o.due_at IS NOT NULL THEN 'behind'
            WHEN o.available_at > statement_timestamp() THEN 'scheduled'
            ELSE 'ready' END,
       o.payload::text, o.headers::text, o.attempts, o.max_attempts, o.created_at,
       coalesce(o.due_at, o.available_at), o.lease_until, NULL,
       o.suspect OR o.lease_id IS NOT NULL AND o.lease_until <= statement_timestamp(), o.dedup_key, o.last_error, NULL,
       o.ordering_key, false
  FROM {schema}.outbox o WHERE o.id = %(id)s
UNION ALL
SELECT d.id, d.tenant_id, d.kind, 'dead', d.payload::text, d.headers::text, d.attempts, d.max_attempts, d.created_at,
       NULL, NULL, d.died_at, false, d.dedup_key, d.last_error, d.reason,
       d.ordering_key, EXISTS (SELECT FROM {schema}.outbox_block b WHERE b.id = d.id)
  FROM {schema}.outbox_dead d WHERE d.id = %(id)s;


-- name: pause
INSERT INTO {schema}.outbox_pause (tenant_id, kind) VALUES (%(tenant_id)s, %(kind)s) ON CONFLICT DO NOTHING RETURNING 1;


-- name: resume
DELETE FROM {schema}.outbox_pause WHERE tenant_id = %(tenant_id)s AND kind = %(kind)s RETURNING 1;


-- name: paused
SELECT nullif(p.tenant_id, ''), nullif(p.kind, ''), p.since FROM {schema}.outbox_pause p ORDER BY p.since, 1, 2;
