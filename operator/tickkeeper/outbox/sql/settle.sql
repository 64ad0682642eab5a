-- Writes under a lease. Each locks its rows in the order of their ids before it changes them, so that two of them over
-- the same rows wait for one another instead of deadlocking, and each says how many rows the lease still held, and
-- where it were not all, which.
-- A row with an ordering_key that goes back takes along the rest of its run: the rows behind it under the same lease.
-- Index: the primary key; outbox_run for the rest.

-- name: ack
-- Rows were handled: they leave. Alone here they are not locked first, which would be a quarter of its time: nobody else
-- changes rows under a live lease, but for a cancellation that saw them before they were claimed. Should the two meet in
-- a deadlock, PostgreSQL ends one, and it is done again.
WITH gone AS (
    DELETE FROM {schema}.outbox
     WHERE id = ANY (%(ids)s::bigint[]) AND lease_id = %(lease_id)s
    RETURNING id
)
SELECT count(*), 0, CASE WHEN count(*) < cardinality(%(ids)s::bigint[]) THEN array_agg(id) END FROM gone;


-- name: fail
-- Rows go back for a later try, or to outbox_dead when told so or when that was their last attempt.
-- A handler that raised has at least not killed its worker: the row is no suspect any more.
-- One time for all of them: rows that wait equally long come back in the order of their ids.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(errors)s::text[], %(afters)s::float8[], %(dead)s::boolean[])
        AS g (id, error, after, dead)
),
mine AS MATERIALIZED (
    SELECT o.id, o.attempts, o.attempts >= o.max_attempts AS spent, o.tenant_id, o.ordering_key FROM {schema}.outbox o
     WHERE o.id = ANY (%(ids)s::bigint[]) AND o.lease_id = %(lease_id)s
     ORDER BY o.id
       FOR UPDATE
),
rest AS MATERIALIZED (
    SELECT r.id
      FROM mine m
     CROSS JOIN LATERAL (
        SELECT o.id, o.lease_id FROM {schema}.outbox o
         WHERE o.tenant_id = m.tenant_id AND o.ordering_key = m.ordering_key AND o.id > m.id
         ORDER BY o.id
         LIMIT %(run)s
     ) r
     WHERE m.ordering_key IS NOT NULL AND r.lease_id = %(lease_id)s AND r.id <> ALL (%(asked)s::bigint[])
),
freed AS (
    UPDATE {schema}.outbox
       SET attempts = greatest(attempts - 1, 0), lease_id = NULL, lease_until = NULL
     WHERE id = ANY (ARRAY(SELECT r.id FROM rest r)) AND lease_id = %(lease_id)s
),
verdict AS MATERIALIZED (
    SELECT m.id, m.attempts, g.error, g.after, g.dead, g.dead OR m.spent AS dies FROM mine m JOIN given g ON g.id = m.id
),
gone AS (
    DELETE FROM {schema}.outbox
     WHERE id = ANY (ARRAY(SELECT v.id FROM verdict v WHERE v.dies)) AND lease_id = %(lease_id)s
    RETURNING *
),
blocked AS (
    INSERT INTO {schema}.outbox_block (id, tenant_id, ordering_key)
    SELECT g.id, g.tenant_id, g.ordering_key FROM gone g WHERE g.ordering_key IS NOT NULL AND %(block)s
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
       SET available_at = CASE WHEN o.due_at IS NULL THEN w.due ELSE o.available_at END,
           due_at = CASE WHEN o.due_at IS NOT NULL THEN w.due END,
           lease_id = NULL, lease_until = NULL, suspect = false, last_error = v.error
      FROM verdict v
     CROSS JOIN LATERAL (
        SELECT statement_timestamp() + make_interval(secs => coalesce(v.after, least(
            %(cap)s::float8, %(base)s::float8 * power(2, least(v.attempts - 1, 30))) * (0.5 + random() / 2))) AS due
     ) w
     WHERE v.id = o.id AND o.id = ANY (ARRAY(SELECT w.id FROM verdict w WHERE NOT w.dies))
       AND o.lease_id = %(lease_id)s
    RETURNING o.id
)
SELECT (SELECT count(*) FROM buried) + (SELECT count(*) FROM back), (SELECT count(*) FROM buried),
       ARRAY(SELECT b.id FROM buried b UNION ALL SELECT b.id FROM back b);


-- name: snooze
-- Rows are put off to a given time, and the attempt is not counted. For a second at least, by this clock and not by the
-- worker's: a row that is due again at once would be claimed again and again within one tick.
WITH given AS MATERIALIZED (
    SELECT g.id, greatest(g.until, clock_timestamp() + interval '1 second') AS until
      FROM unnest(%(ids)s::bigint[], %(untils)s::timestamptz[]) AS g (id, until)
),
mine AS MATERIALIZED (
    SELECT o.id, o.tenant_id, o.ordering_key FROM {schema}.outbox o
     WHERE o.id = ANY (%(ids)s::bigint[]) AND o.lease_id = %(lease_id)s
     ORDER BY o.id
       FOR UPDATE
),
rest AS MATERIALIZED (
    SELECT r.id
      FROM mine m
     CROSS JOIN LATERAL (
        SELECT o.id, o.lease_id FROM {schema}.outbox o
         WHERE o.tenant_id = m.tenant_id AND o.ordering_key = m.ordering_key AND o.id > m.id
         ORDER BY o.id
         LIMIT %(run)s
     ) r
     WHERE m.ordering_key IS NOT NULL AND r.lease_id = %(lease_id)s AND r.id <> ALL (%(asked)s::bigint[])
),
freed AS (
    UPDATE {schema}.outbox
       SET attempts = greatest(attempts - 1, 0), lease_id = NULL, lease_until = NULL
     WHERE id = ANY (ARRAY(SELECT r.id FROM rest r)) AND lease_id = %(lease_id)s
),
back AS (
    UPDATE {schema}.outbox o
       SET available_at = CASE WHEN o.due_at IS NULL THEN g.until ELSE o.available_at END,
           due_at = CASE WHEN o.due_at IS NOT NULL THEN g.until END, attempts = greatest(o.attempts - 1, 0),
           lease_id = NULL, lease_until = NULL, suspect = false
      FROM given g
     WHERE g.id = o.id AND o.id = ANY (ARRAY(SELECT m.id FROM mine m)) AND o.lease_id = %(lease_id)s
    RETURNING o.id
)
SELECT count(*), 0, array_agg(id) FROM back;


-- name: release
-- Rows were never started: they go back at once, and the attempt is not counted. A suspect stays one.
WITH mine AS MATERIALIZED (
    SELECT o.id, o.tenant_id, o.ordering_key FROM {schema}.outbox o
     WHERE o.id = ANY (%(ids)s::bigint[]) AND o.lease_id = %(lease_id)s
     ORDER BY o.id
       FOR UPDATE
),
rest AS MATERIALIZED (
    SELECT r.id
      FROM mine m
     CROSS JOIN LATERAL (
        SELECT o.id, o.lease_id FROM {schema}.outbox o
         WHERE o.tenant_id = m.tenant_id AND o.ordering_key = m.ordering_key AND o.id > m.id
         ORDER BY o.id
         LIMIT %(run)s
     ) r
     WHERE m.ordering_key IS NOT NULL AND r.lease_id = %(lease_id)s AND r.id <> ALL (%(asked)s::bigint[])
),
freed AS (
    UPDATE {schema}.outbox
       SET attempts = greatest(attempts - 1, 0), lease_id = NULL, lease_until = NULL
     WHERE id = ANY (ARRAY(SELECT r.id FROM rest r)) AND lease_id = %(lease_id)s
),
back AS (
    UPDATE {schema}.outbox
       SET attempts = greatest(attempts - 1, 0), lease_id = NULL, lease_until = NULL
     WHERE id = ANY (ARRAY(SELECT m.id FROM mine m)) AND lease_id = %(lease_id)s
    RETURNING id
)
SELECT count(*), 0, array_agg(id) FROM back;


-- name: renew
-- Rows are held longer, from now. A row that is locked is in its handler's own transaction, which holds it better than
-- any lease: it is passed over, and counts.
WITH ours AS MATERIALIZED (
    SELECT o.id FROM {schema}.outbox o WHERE o.id = ANY (%(ids)s::bigint[]) AND o.lease_id = %(lease_id)s
),
mine AS MATERIALIZED (
    SELECT o.id FROM {schema}.outbox o
     WHERE o.id = ANY (%(ids)s::bigint[]) AND o.lease_id = %(lease_id)s
     ORDER BY o.id
       FOR UPDATE SKIP LOCKED
),
held AS (
    UPDATE {schema}.outbox
       SET lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
     WHERE id = ANY (ARRAY(SELECT m.id FROM mine m)) AND lease_id = %(lease_id)s
    RETURNING id
)
SELECT count(*), 0, CASE WHEN count(*) < cardinality(%(ids)s::bigint[]) THEN array_agg(id) END FROM ours;


-- name: cancel
-- Rows of a tenant that wait, by id or by dedup_key, leave undelivered. A row under a live lease is with a worker: it
-- stays, and is told as held. It is not locked, since its handler's own transaction may hold it for as long as it likes.
-- Index: the primary key, or outbox_dedup.
WITH named AS MATERIALIZED (
    SELECT o.id, coalesce(o.lease_until > statement_timestamp(), false) AS held FROM {schema}.outbox o
     WHERE o.tenant_id = %(tenant_id)s
       AND (%(ids)s::bigint[] IS NULL OR o.id = ANY (%(ids)s::bigint[]))
       AND (%(dedup_key)s::text IS NULL OR o.dedup_key = %(dedup_key)s)
),
-- Looked at again under the lock: it may have been claimed meanwhile.
waiting AS MATERIALIZED (
    SELECT o.id, coalesce(o.lease_until > statement_timestamp(), false) AS held FROM {schema}.outbox o
     WHERE o.id = ANY (ARRAY(SELECT n.id FROM named n WHERE NOT n.held))
     ORDER BY o.id
       FOR UPDATE
),
gone AS (
    DELETE FROM {schema}.outbox WHERE id = ANY (ARRAY(SELECT w.id FROM waiting w WHERE NOT w.held))
    RETURNING id
)
SELECT ARRAY(SELECT g.id FROM gone g),
       ARRAY(SELECT n.id FROM named n WHERE n.held UNION ALL SELECT w.id FROM waiting w WHERE w.held);


-- name: hold
-- The rows that are still ours, locked until the end of the transaction: nobody claims them meanwhile. NULL: all of them.
-- And which transaction it is: a handler may have ended it by SQL and begun another.
WITH mine AS MATERIALIZED (
    SELECT o.id FROM {schema}.outbox o
     WHERE o.id = ANY (%(ids)s::bigint[]) AND o.lease_id = %(lease_id)s
     ORDER BY o.id
       FOR UPDATE
)
SELECT CASE WHEN count(*) < cardinality(%(ids)s::bigint[]) THEN coalesce(array_agg(id), '{{}}') END,
       pg_current_xact_id()::text FROM mine;


-- name: leave
-- Rows leave within a transaction, and nobody sees it before its commit: those that hold has locked and that were handled,
-- or all at its beginning, where they will all leave or none; that locks them as well. Tells what hold tells.
WITH gone AS (
    DELETE FROM {schema}.outbox WHERE id = ANY (%(ids)s::bigint[]) AND lease_id = %(lease_id)s
    RETURNING id
)
SELECT CASE WHEN count(*) < cardinality(%(ids)s::bigint[]) THEN coalesce(array_agg(id), '{{}}') END,
       pg_current_xact_id()::text FROM gone;


-- name: same_transaction
SELECT pg_current_xact_id_if_assigned()::text;
