-- @online
-- @serves 1
-- The indexes of strict order per key. Built without blocking anybody, since they read the whole table: outside of a
-- transaction, one statement at a time, each of which may be repeated. No row has an ordering_key yet.

-- Serves: run, fence, fail, snooze and release (the rest of a run; in outbox_next and outbox_mend: the next row).
CREATE INDEX CONCURRENTLY IF NOT EXISTS outbox_run ON {schema}.outbox (tenant_id, ordering_key, id)
    WHERE ordering_key IS NOT NULL;

-- At most one row of a key can be claimed, whatever goes wrong elsewhere.
-- Serves: checks (in outbox_mend: the first row of a key).
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS outbox_head ON {schema}.outbox (tenant_id, ordering_key)
    WHERE ordering_key IS NOT NULL AND available_at < 'infinity';
