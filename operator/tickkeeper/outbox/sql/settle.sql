-- Writes under a lease. Each locks its rows in the order of their ids before it changes them, so that two of them over
-- the same rows wait for one another instead of deadlocking, and each says how many rows the lease still held.
-- Index: the primary key.

-- name: ack
-- Rows were handled: they leave.
WITH mine AS MATERIALIZED (
    SELECT o.id FROM {schema}.outbox o
     WHERE o.id = ANY (%(ids)s::bigint[]) AND o.lease_id = %(lease_id)s
     ORDER BY o.id
       FOR UPDATE
),
gone AS (
    DELETE FROM {schema}.outbox
     WHERE id = ANY (ARRAY(SELECT m.id FROM mine m)) AND lease_id = %(lease_id)s
    RETURNING id
)
SELECT count(*), 0 FROM gone;


-- name: fail
-- Rows go back for a later try, or to outbox_dead when told so or when that was their last attempt.
-- A handler that raised has at least not killed its worker: the row is no suspect any more.
-- One time for all of them: rows that wait equally long come back in the order of their ids.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(errors)s::text[], %(afters)s::float8[], %(dead)s::boolean[])
        AS g (id, error, after, dead)
),
mine AS MATERIALIZED (
    SELECT o.id, o.attempts >= o.max_attempts AS spent FROM {schema}.outbox o
     WHERE o.id = ANY (%(ids)s::bigint[]) AND o.lease_id = %(lease_id)s
     ORDER BY o.id
       FOR UPDATE
),
verdict AS MATERIALIZED (
    SELECT m.id, g.error, g.after, g.dead, g.dead OR m.spent AS dies FROM mine m JOIN given g ON g.id = m.id
),
gone AS (
    DELETE FROM {schema}.outbox
     WHERE id = ANY (ARRAY(SELECT v.id FROM verdict v WHERE v.dies)) AND lease_id = %(lease_id)s
    RETURNING *
),
buried AS (
    INSERT INTO {schema}.outbox_dead (id, tenant_id, kind, payload, payload_bytes, headers, dedup_key, ordering_key,
                                      attempts, max_attempts, created_at, reason, last_error)
    SELECT g.id, g.tenant_id, g.kind, g.payload, g.payload_bytes, g.headers, g.dedup_key, g.ordering_key,
           g.attempts, g.max_attempts, g.created_at, CASE WHEN v.dead THEN 'rejected' ELSE 'exhausted' END, v.error
      FROM gone g JOIN verdict v ON v.id = g.id
    RETURNING id
),
back AS (
    UPDATE {schema}.outbox o
       SET available_at = statement_timestamp() + make_interval(secs => coalesce(
               v.after,
               least(%(cap)s::float8, %(base)s::float8 * power(2, least(o.attempts - 1, 30))) * (0.5 + random() / 2))),
           lease_id = NULL, lease_until = NULL, suspect = false, last_error = v.error
      FROM verdict v
     WHERE v.id = o.id AND o.id = ANY (ARRAY(SELECT w.id FROM verdict w WHERE NOT w.dies))
       AND o.lease_id = %(lease_id)s
    RETURNING o.id
)
SELECT (SELECT count(*) FROM buried) + (SELECT count(*) FROM back), (SELECT count(*) FROM buried);


-- name: snooze
-- Rows are put off to a given time, and the attempt is not counted.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(untils)s::timestamptz[]) AS g (id, until)
),
mine AS MATERIALIZED (
    SELECT o.id FROM {schema}.outbox o
     WHERE o.id = ANY (%(ids)s::bigint[]) AND o.lease_id = %(lease_id)s
     ORDER BY o.id
       FOR UPDATE
),
back AS (
    UPDATE {schema}.outbox o
       SET available_at = g.until, attempts = greatest(o.attempts - 1, 0),
           lease_id = NULL, lease_until = NULL, suspect = false
      FROM given g
     WHERE g.id = o.id AND o.id = ANY (ARRAY(SELECT m.id FROM mine m)) AND o.lease_id = %(lease_id)s
    RETURNING o.id
)
SELECT count(*), 0 FROM back;


-- name: release
-- Rows were never started: they go back at once, and the attempt is not counted. A suspect stays one.
WITH mine AS MATERIALIZED (
    SELECT o.id FROM {schema}.outbox o
     WHERE o.id = ANY (%(ids)s::bigint[]) AND o.lease_id = %(lease_id)s
     ORDER BY o.id
       FOR UPDATE
),
back AS (
    UPDATE {schema}.outbox
       SET attempts = greatest(attempts - 1, 0), lease_id = NULL, lease_until = NULL
     WHERE id = ANY (ARRAY(SELECT m.id FROM mine m)) AND lease_id = %(lease_id)s
    RETURNING id
)
SELECT count(*), 0 FROM back;


-- name: renew
-- Rows are held longer, from now.
WITH mine AS MATERIALIZED (
    SELECT o.id FROM {schema}.outbox o
     WHERE o.id = ANY (%(ids)s::bigint[]) AND o.lease_id = %(lease_id)s
     ORDER BY o.id
       FOR UPDATE
),
held AS (
    UPDATE {schema}.outbox
       SET lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
     WHERE id = ANY (ARRAY(SELECT m.id FROM mine m)) AND lease_id = %(lease_id)s
    RETURNING id
)
SELECT count(*), 0 FROM held;


-- name: cancel
-- Rows of a tenant that wait, by id or by dedup_key, leave undelivered. A row under a live lease is with a worker: it
-- stays, and is counted as held.
-- Index: the primary key, or outbox_dedup.
WITH named AS MATERIALIZED (
    SELECT o.id, coalesce(o.lease_until > statement_timestamp(), false) AS held FROM {schema}.outbox o
     WHERE o.tenant_id = %(tenant_id)s
       AND (%(ids)s::bigint[] IS NULL OR o.id = ANY (%(ids)s::bigint[]))
       AND (%(dedup_key)s::text IS NULL OR o.dedup_key = %(dedup_key)s)
     ORDER BY o.id
       FOR UPDATE
),
gone AS (
    DELETE FROM {schema}.outbox WHERE id = ANY (ARRAY(SELECT n.id FROM named n WHERE NOT n.held))
    RETURNING id
)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM named n WHERE n.held);
