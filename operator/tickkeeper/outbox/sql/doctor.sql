-- What the doctor looks at. Only catalogs and settings, no rows: any role may ask.

-- name: doctor_server
SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
       current_setting('server_encoding'), pg_is_in_recovery(), current_user::text, pg_backend_pid(),
       current_setting('default_transaction_isolation'), current_setting('default_transaction_read_only') = 'on',
       current_setting('session_replication_role'), current_setting('autovacuum') = 'on',
       current_setting('track_counts') = 'on',
       (SELECT s.setting::float8 / 1000 FROM pg_catalog.pg_settings s WHERE s.name = 'statement_timeout'),
       (SELECT s.setting::float8 / 1000 FROM pg_catalog.pg_settings s WHERE s.name = 'lock_timeout');


-- name: doctor_schema
-- Whether the schema is there, and its table of versions.
SELECT to_regnamespace(quote_ident(%(schema)s)) IS NOT NULL,
       EXISTS (SELECT FROM pg_catalog.pg_tables t WHERE t.schemaname = %(schema)s AND t.tablename = 'schema_version');


-- name: doctor_indexes
-- The indexes of the schema: name, table, whether usable, and the columns.
SELECT i.relname::text, t.relname::text, x.indisvalid AND x.indisready,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = x.indrelid AND a.attnum = ANY (x.indkey::smallint[])),
       pg_get_expr(x.indpred, x.indrelid)
  FROM pg_catalog.pg_index x
  JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
  JOIN pg_catalog.pg_class t ON t.oid = x.indrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
 WHERE n.nspname = %(schema)s
 ORDER BY 1;


-- name: doctor_triggers
-- The triggers of the schema's tables, and whether they fire.
SELECT g.tgname::text, g.tgenabled IN ('O', 'A')
  FROM pg_catalog.pg_trigger g
  JOIN pg_catalog.pg_class t ON t.oid = g.tgrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
 WHERE n.nspname = %(schema)s AND NOT g.tgisinternal
 ORDER BY 1;


-- name: doctor_tables
-- The two tables of rows: their options, and what the statistics say of them.
SELECT c.relname::text, coalesce(c.reloptions, '{{}}'), s.n_live_tup, s.n_dead_tup, s.n_tup_upd, s.n_tup_hot_upd,
       extract(epoch FROM clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum))::float8
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_stat_all_tables s ON s.relid = c.oid
 WHERE n.nspname = %(schema)s AND c.relname IN ('outbox', 'outbox_dead')
 ORDER BY 1;


-- name: doctor_grants
-- What there is to be granted in the schema, and whether the role that asks has it.
SELECT 'SCHEMA', n.nspname::text, 'USAGE', has_schema_privilege(n.oid, 'USAGE')
  FROM pg_catalog.pg_namespace n WHERE n.nspname = %(schema)s
UNION ALL
SELECT 'TABLE', c.relname::text, p.name, has_table_privilege(c.oid, p.name)
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS p (name)
 WHERE n.nspname = %(schema)s AND c.relkind = 'r'
UNION ALL
SELECT 'FUNCTION', f.proname::text, 'EXECUTE', has_function_privilege(f.oid, 'EXECUTE')
  FROM pg_catalog.pg_proc f JOIN pg_catalog.pg_namespace n ON n.oid = f.pronamespace
 WHERE n.nspname = %(schema)s;


-- name: doctor_blocks
-- Keys whose rows wait for a dead row: how many, and one of them.
SELECT count(*), min(b.tenant_id), min(b.id) FROM (SELECT * FROM {schema}.outbox_block b ORDER BY b.id LIMIT 10000) b;
