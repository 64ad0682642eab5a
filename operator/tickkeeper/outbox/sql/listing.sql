-- Rows to look through, page by page. Each page examines a bounded number of rows in the order of an index and keeps those
-- that are wanted: so it ends soon, wanted ones or not, and the next begins where it ended.

-- name: list_live
-- The first record is where the page ended, null at the end of all; the rows of the page follow. A tenant and, with it, a
-- kind narrow the index; a kind of all tenants is picked out.
-- Index: outbox_due.
WITH examined AS MATERIALIZED (
    SELECT o.id, o.tenant_id, o.kind, o.available_at, o.attempts, o.max_attempts, o.created_at, o.due_at, o.lease_id,
           o.lease_until, o.suspect, o.dedup_key, o.ordering_key, o.payload_bytes, o.last_error
      FROM {schema}.outbox o
     WHERE (%(tenant_id)s::text IS NULL OR o.tenant_id = %(tenant_id)s)
       AND (%(tenant_id)s::text IS NULL OR %(kind)s::text IS NULL OR o.kind = %(kind)s)
       AND (%(last_tenant)s::text IS NULL OR (o.tenant_id, o.kind, o.available_at, o.id)
            > (%(last_tenant)s, %(last_kind)s::text, to_timestamp(%(last_due)s::float8), %(last_id)s::bigint))
     ORDER BY o.tenant_id, o.kind, o.available_at, o.id
     LIMIT %(examined)s
),
told AS (
    SELECT e.*, CASE WHEN e.lease_until > statement_timestamp() THEN 'leased'
                     WHEN e.due_at IS NOT NULL THEN 'behind'
                     WHEN e.available_at > statement_timestamp() THEN 'scheduled'
                     ELSE 'ready' END AS state
      FROM examined e
),
page AS MATERIALIZED (
    SELECT t.* FROM told t
     WHERE (%(kind)s::text IS NULL OR t.kind = %(kind)s) AND (%(state)s::text IS NULL OR t.state = %(state)s)
     ORDER BY t.tenant_id, t.kind, t.available_at, t.id
     LIMIT %(limit)s
),
ends AS (
    -- A full page ends at its last row; another at the last row examined, or at the end of all.
    (SELECT p.tenant_id, p.kind, p.available_at, p.id FROM page p
      WHERE (SELECT count(*) FROM page) = %(limit)s
      ORDER BY p.tenant_id DESC, p.kind DESC, p.available_at DESC, p.id DESC LIMIT 1)
    UNION ALL
    (SELECT e.tenant_id, e.kind, e.available_at, e.id FROM examined e
      WHERE (SELECT count(*) FROM page) < %(limit)s AND (SELECT count(*) FROM examined) = %(examined)s
      ORDER BY e.tenant_id DESC, e.kind DESC, e.available_at DESC, e.id DESC LIMIT 1)
)
SELECT n.* FROM (
    SELECT 0 AS part, e.id, e.tenant_id, e.kind, NULL AS state, extract(epoch FROM e.available_at)::float8 AS due_seconds,
           NULL::smallint AS attempts, NULL::smallint AS max_attempts, NULL::timestamptz AS created_at,
           NULL::timestamptz AS due, NULL::timestamptz AS lease_until, NULL::boolean AS suspect, NULL AS dedup_key,
           NULL AS ordering_key, NULL::integer AS payload_bytes, NULL AS error
      FROM ends e
    UNION ALL
    SELECT 1, p.id, p.tenant_id, p.kind, p.state, extract(epoch FROM p.available_at)::float8,
           p.attempts, p.max_attempts, p.created_at, coalesce(p.due_at, p.available_at), p.lease_until,
           p.suspect OR p.lease_id IS NOT NULL AND p.lease_until <= statement_timestamp(), p.dedup_key,
           p.ordering_key, p.payload_bytes, left(p.last_error, 200)
      FROM page p
) n
 ORDER BY n.part, n.tenant_id, n.kind, n.due_seconds, n.id;


-- name: list_dead
-- The same of dead rows, in the order of their ids.
-- A range and not an equation: else the tenant would not count for the order, and the primary key could be read instead,
-- all rows of others with it.
-- Index: outbox_dead_tenant, or the primary key.
WITH examined AS MATERIALIZED (
    SELECT d.* FROM {schema}.outbox_dead d
     WHERE (%(tenant_id)s::text IS NULL OR d.tenant_id <= %(tenant_id)s
            AND (d.tenant_id, d.id) > (%(tenant_id)s, coalesce(%(last_id)s::bigint, -9223372036854775808)))
       AND (%(tenant_id)s::text IS NOT NULL OR d.id > coalesce(%(last_id)s::bigint, -9223372036854775808))
     ORDER BY CASE WHEN %(tenant_id)s::text IS NOT NULL THEN d.tenant_id END, d.id
     LIMIT %(examined)s
),
page AS MATERIALIZED (
    SELECT e.* FROM examined e WHERE %(kind)s::text IS NULL OR e.kind = %(kind)s ORDER BY e.id LIMIT %(limit)s
)
SELECT n.* FROM (
    SELECT 0 AS part, coalesce((SELECT max(p.id) FROM page p HAVING count(*) = %(limit)s),
                               (SELECT max(e.id) FROM examined e HAVING count(*) = %(examined)s)) AS id, NULL AS tenant_id,
           NULL AS kind, NULL AS state, NULL::float8 AS due_seconds, NULL::smallint AS attempts,
           NULL::smallint AS max_attempts, NULL::timestamptz AS created_at, NULL::timestamptz AS due,
           NULL::timestamptz AS lease_until, NULL::boolean AS suspect, NULL AS dedup_key, NULL AS ordering_key,
           NULL::integer AS payload_bytes, NULL AS error
    UNION ALL
    SELECT 1, p.id, p.tenant_id, p.kind, 'dead', NULL, p.attempts, p.max_attempts, p.created_at, NULL, NULL, false,
           p.dedup_key, p.ordering_key, p.payload_bytes, left(p.last_error, 200)
      FROM page p
) n
 WHERE n.id IS NOT NULL
 ORDER BY n.part, n.id;
