-- Calls of the function that the first migration explains. A delay is added to the database's clock, never to ours.

-- name: enqueue
SELECT e.id, e.outcome
  FROM {schema}.enqueue(
           tenant_id => %(tenant_id)s, kind => %(kind)s, payload => %(payload)s::jsonb, headers => %(headers)s::jsonb,
           dedup_key => %(dedup_key)s, on_duplicate => %(on_duplicate)s,
           available_at => coalesce(%(available_at)s::timestamptz,
                                    clock_timestamp() + make_interval(secs => %(delay)s::float8)),
           max_attempts => %(max_attempts)s, ordering_key => %(ordering_key)s) e;


-- name: enqueue_many
-- In the given order, so that ids follow it.
SELECT e.id, e.outcome
  FROM unnest(%(tenant_id)s::text[], %(kind)s::text[], %(payload)s::text[], %(headers)s::text[], %(dedup_key)s::text[],
              %(on_duplicate)s::text[], %(available_at)s::timestamptz[], %(delay)s::float8[],
              %(max_attempts)s::integer[], %(ordering_key)s::text[])
       WITH ORDINALITY AS r (tenant_id, kind, payload, headers, dedup_key, on_duplicate, available_at, delay,
                             max_attempts, ordering_key, place)
 CROSS JOIN LATERAL {schema}.enqueue(
           tenant_id => r.tenant_id, kind => r.kind, payload => r.payload::jsonb, headers => r.headers::jsonb,
           dedup_key => r.dedup_key, on_duplicate => r.on_duplicate,
           available_at => coalesce(r.available_at, clock_timestamp() + make_interval(secs => r.delay)),
           max_attempts => r.max_attempts, ordering_key => r.ordering_key) e
 ORDER BY r.place;
