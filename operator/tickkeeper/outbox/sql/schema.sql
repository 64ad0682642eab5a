-- The schema's own state.

-- name: create_version_table
-- compatible_with: the oldest schema version whose programs still work on this one, null when only its own do. So a
-- database can be migrated before the last worker of the former release has gone.
CREATE TABLE IF NOT EXISTS {schema}.schema_version (
    version         integer     PRIMARY KEY,
    name            text        NOT NULL,
    compatible_with integer,
    applied_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);


-- name: schema_version
SELECT v.version, v.compatible_with FROM {schema}.schema_version v ORDER BY v.version DESC LIMIT 1;


-- name: record_version
INSERT INTO {schema}.schema_version (version, name, compatible_with) VALUES (%(version)s, %(name)s, %(serves)s);


-- name: broken_indexes
-- What is left of a CREATE INDEX CONCURRENTLY that did not end: it serves nobody, and stands in its own way.
SELECT i.indexrelid::regclass::text
  FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
 WHERE NOT i.indisvalid AND c.relnamespace = %(schema)s::regnamespace;
