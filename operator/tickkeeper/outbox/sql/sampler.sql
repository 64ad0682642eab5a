-- What the sampler reads: bounded by LIMITs, whatever the size of the outbox. States are told apart as in look.sql.

-- name: sample_turn
-- Whether it is this session's turn: one sampler at a time for a schema.
SELECT pg_try_advisory_xact_lock(hashtextextended(%(name)s, 0));


-- name: sample_first
-- How many rows there are, counted up to one more than the bound, and the age of the oldest of these by created_at, those
-- left out whose time never came so far.
-- Index: the primary key.
SELECT count(*),
       extract(epoch FROM clock_timestamp() - min(f.created_at) FILTER (
           WHERE f.attempts > 0 OR coalesce(f.due_at, f.available_at) <= statement_timestamp()))::float8
  FROM (SELECT o.created_at, o.attempts, o.due_at, o.available_at FROM {schema}.outbox o
         ORDER BY o.id LIMIT %(bound)s + 1) f;


-- name: sample_all
-- All rows of a small outbox, by state. The earliest due time is that of leased rows too: a row that hangs in its handler is
-- late as well. One with an ordering_key that waits behind another is due with that.
-- Index: the primary key.
WITH told AS MATERIALIZED (
    SELECT f.tenant_id, f.available_at, CASE WHEN f.lease_until <= statement_timestamp() THEN f.lease_until END AS ended,
           CASE WHEN f.lease_until > statement_timestamp() THEN 'leased'
                WHEN f.due_at IS NOT NULL THEN 'behind'
                WHEN f.available_at > statement_timestamp() THEN 'scheduled'
                ELSE 'ready' END AS state
      FROM (SELECT * FROM {schema}.outbox o ORDER BY o.id LIMIT %(bound)s + 1) f
)
SELECT count(*) FILTER (WHERE state = 'ready'), count(*) FILTER (WHERE state = 'leased'),
       count(*) FILTER (WHERE state = 'scheduled'), count(*) FILTER (WHERE state = 'behind'),
       extract(epoch FROM clock_timestamp() - min(available_at) FILTER (WHERE available_at <= statement_timestamp()))::float8,
       count(ended), extract(epoch FROM clock_timestamp() - min(ended))::float8,
       ARRAY(SELECT DISTINCT t.tenant_id FROM told t ORDER BY 1)
  FROM told;


-- name: sample_heads
-- The same of a part of a larger outbox: so many tenants and kinds behind a given one, each by its earliest row, and up to
-- a bound of their rows that are due and of the others, so counts say "at least". These are counted in the index alone;
-- which of them are leased stands in the table, where fewer are looked at. And where the part ends, null at the end of all.
-- Index: outbox_due (a loose scan, then a range for each tenant and kind).
WITH RECURSIVE found (tenant_id, kind, due, fresh) AS (
    (SELECT o.tenant_id, o.kind, o.available_at, o.tenant_id IS DISTINCT FROM %(last_tenant)s::text FROM {schema}.outbox o
      WHERE %(last_tenant)s::text IS NULL OR (o.tenant_id, o.kind) > (%(last_tenant)s, %(last_kind)s::text)
      ORDER BY o.tenant_id, o.kind, o.available_at LIMIT 1)
    UNION ALL
    SELECT n.tenant_id, n.kind, n.available_at, n.tenant_id <> f.tenant_id
      FROM found f
     CROSS JOIN LATERAL (
        SELECT o.tenant_id, o.kind, o.available_at FROM {schema}.outbox o
         WHERE (o.tenant_id, o.kind) > (f.tenant_id, f.kind)
         ORDER BY o.tenant_id, o.kind, o.available_at LIMIT 1
     ) n
),
heads AS MATERIALIZED (
    SELECT f.tenant_id, f.kind, f.due, f.fresh FROM found f LIMIT %(pairs)s
),
every AS (
    SELECT count(*) AS pairs, array_agg(h.tenant_id) FILTER (WHERE h.fresh) AS tenants,
           min(h.due) FILTER (WHERE h.due <= statement_timestamp()) AS due
      FROM heads h
),
due AS (
    SELECT count(*) AS every
      FROM (SELECT FROM heads h
             CROSS JOIN LATERAL (
                SELECT FROM {schema}.outbox o
                 WHERE o.tenant_id = h.tenant_id AND o.kind = h.kind AND o.available_at <= statement_timestamp()
                 ORDER BY o.available_at, o.id
                 LIMIT %(bound)s
             ) r
             WHERE h.due <= statement_timestamp()
             LIMIT %(bound)s) r
),
held AS (
    SELECT count(*) FILTER (WHERE r.lease_until > statement_timestamp()) AS leased,
           count(*) FILTER (WHERE r.lease_until <= statement_timestamp()) AS expired,
           min(r.lease_until) FILTER (WHERE r.lease_until <= statement_timestamp()) AS ended
      FROM (SELECT r.lease_until FROM heads h
             CROSS JOIN LATERAL (
                SELECT o.lease_until FROM {schema}.outbox o
                 WHERE o.tenant_id = h.tenant_id AND o.kind = h.kind AND o.available_at <= statement_timestamp()
                 ORDER BY o.available_at, o.id
                 LIMIT %(looked)s
             ) r
             WHERE h.due <= statement_timestamp()
             LIMIT %(looked)s) r
),
later AS MATERIALIZED (
    SELECT h.tenant_id, h.kind, r.available_at
      FROM (SELECT h.tenant_id, h.kind FROM heads h WHERE h.due > statement_timestamp()
            UNION ALL
            -- Beside due rows there may be others: asking every tenant would cost as much as finding them all did.
            (SELECT h.tenant_id, h.kind FROM heads h WHERE h.due <= statement_timestamp() LIMIT %(asked)s)) h
     CROSS JOIN LATERAL (
        SELECT o.available_at FROM {schema}.outbox o
         WHERE o.tenant_id = h.tenant_id AND o.kind = h.kind AND o.available_at > statement_timestamp()
         ORDER BY o.available_at, o.id
         LIMIT %(bound)s
     ) r
     LIMIT %(bound)s
),
-- Those behind another row have no time of their own (infinity); a run takes them along under its lease.
along AS (
    SELECT count(*) AS leased
      FROM (SELECT r.lease_until
              FROM (SELECT DISTINCT l.tenant_id, l.kind FROM later l WHERE l.available_at = 'infinity') h
             CROSS JOIN LATERAL (
                SELECT o.lease_until FROM {schema}.outbox o
                 WHERE o.tenant_id = h.tenant_id AND o.kind = h.kind AND o.available_at = 'infinity'
                 ORDER BY o.available_at, o.id
                 LIMIT %(looked)s
             ) r
             LIMIT %(looked)s) r
     WHERE r.lease_until > statement_timestamp()
),
others AS (
    SELECT count(*) FILTER (WHERE l.available_at < 'infinity') AS scheduled,
           count(*) FILTER (WHERE l.available_at = 'infinity') AS behind
      FROM later l
)
SELECT d.every - h.leased, h.leased + a.leased, t.scheduled, greatest(t.behind - a.leased, 0),
       extract(epoch FROM clock_timestamp() - e.due)::float8, h.expired,
       extract(epoch FROM clock_timestamp() - h.ended)::float8, coalesce(e.tenants, '{{}}'), p.tenant_id, p.kind
  FROM every e CROSS JOIN due d CROSS JOIN held h CROSS JOIN along a CROSS JOIN others t
  LEFT JOIN LATERAL (
    SELECT h.tenant_id, h.kind FROM heads h WHERE e.pairs = %(pairs)s ORDER BY h.tenant_id DESC, h.kind DESC LIMIT 1
  ) p ON true;


-- name: sample_dead
-- Index: the primary key.
SELECT count(*) FROM (SELECT FROM {schema}.outbox_dead d ORDER BY d.id LIMIT %(bound)s) c;


-- name: sample_upkeep
-- Dead row versions that wait for vacuum, as the statistics have them.
SELECT coalesce(sum(s.n_dead_tup), 0)::bigint FROM pg_catalog.pg_stat_all_tables s
 WHERE s.relid = ANY (ARRAY['{schema}.outbox'::regclass, '{schema}.outbox_dead'::regclass]::oid[]);


-- name: sample_horizon
-- Whose snapshot keeps dead rows from being cleaned up: the oldest first. Sessions of other databases do not count, nor
-- vacuums. Their queries are not read. How long ago a session of another role began is seen by members of pg_monitor only.
SELECT s.holder, s.pid, s.name, age(s.xmin), s.seconds
  FROM (SELECT 'session' AS holder, a.pid, a.application_name AS name, a.backend_xmin AS xmin,
               extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds
          FROM pg_catalog.pg_stat_activity a
         WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid()
           AND (a.datid IS NULL OR a.datid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()))
           AND NOT (a.usesysid IS NULL AND a.datid IS NOT NULL) -- autovacuum
        UNION ALL
        SELECT 'prepared transaction', NULL, p.gid, p.transaction,
               extract(epoch FROM clock_timestamp() - p.prepared)::float8
          FROM pg_catalog.pg_prepared_xacts p WHERE p.database = current_database()
        UNION ALL
        SELECT 'replication slot', r.active_pid, r.slot_name::text, r.xmin, NULL
          FROM pg_catalog.pg_replication_slots r WHERE r.xmin IS NOT NULL) s
 ORDER BY age(s.xmin) DESC, s.seconds DESC NULLS LAST
 LIMIT 20;
