-- @online
-- @serves 1
-- For replays in the order of ids, oldest first, of which the newest of one dedup_key goes. Built without blocking anybody.

-- Serves: replay (a newer dead row with the same dedup_key).
CREATE INDEX CONCURRENTLY IF NOT EXISTS outbox_dead_dedup ON {schema}.outbox_dead (tenant_id, dedup_key, id)
    WHERE dedup_key IS NOT NULL;
