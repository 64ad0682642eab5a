{{/* Values that the schema accepts one by one and that do not fit together. */}}
{{- define "tickkeeper.check" -}}
{{- $values := .Values -}}
{{- if not (or (include "tickkeeper.redis.configured" .) $values.secretRefs.enabled) -}}
{{- fail "No Redis is configured. Set redis.url or redis.existingSecret (or trial.redis.enabled=true to try things out). With secretRefs.enabled=true none is needed: every TickSchedule then names its own." -}}
{{- end -}}
{{- if and $values.trial.redis.enabled (or $values.redis.url $values.redis.existingSecret) -}}
{{- fail "trial.redis.enabled=true and redis.url or redis.existingSecret: only one Redis can be the release's own." -}}
{{- end -}}
{{- if and $values.trial.postgres.enabled (or $values.database.url $values.database.existingSecret) -}}
{{- fail "trial.postgres.enabled=true and database.url or database.existingSecret: only one Postgres can be the release's own." -}}
{{- end -}}
{{- if and $values.database.url $values.database.existingSecret -}}
{{- fail "database.url and database.existingSecret: give only one of them." -}}
{{- end -}}
{{- if and $values.watchNamespaces (not $values.clusterId) -}}
{{- fail "clusterId is required together with watchNamespaces: any name of this cluster that no other cluster with the same Redis has." -}}
{{- end -}}
{{- include "tickkeeper.check.redis" (dict "where" "redis" "redis" $values.redis) -}}
{{- $names := dict -}}
{{- range $index, $given := $values.workers -}}
{{- $pool := include "tickkeeper.pool" (dict "root" $ "pool" $given) | fromYaml -}}
{{- $where := printf "workers[%d] (%s)" $index $pool.name -}}
{{- if hasKey $names $pool.name -}}
{{- fail (printf "%s: another pool has this name." $where) -}}
{{- end -}}
{{- $_ := set $names $pool.name true -}}
{{- if not (or $pool.redis.url $pool.redis.existingSecret (include "tickkeeper.redis.configured" $)) -}}
{{- fail (printf "%s has no Redis: set redis.url or redis.existingSecret, of the release or of the pool." $where) -}}
{{- end -}}
{{- include "tickkeeper.check.redis" (dict "where" (printf "%s.redis" $where) "redis" $pool.redis) -}}
{{- if and $pool.redis.url (not $pool.redis.existingSecret) (contains "@" $pool.redis.url) -}}
{{- fail (printf "%s.redis.url has credentials in it: put them into a Secret and name it as existingSecret." $where) -}}
{{- end -}}
{{- if not (or $pool.database.existingSecret (include "tickkeeper.database.configured" $)) -}}
{{- fail (printf "%s has no Postgres: set database.existingSecret of the release or of the pool, or database.url (or trial.postgres.enabled=true to try things out)." $where) -}}
{{- end -}}
{{- if and $pool.routes.inline $pool.routes.configMap -}}
{{- fail (printf "%s: routes.inline and routes.configMap: give only one of them." $where) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tickkeeper.check.redis" -}}
{{- if and .redis.existingSecret .redis.url (contains "@" .redis.url) -}}
{{- fail (printf "%s.url has credentials in it although %s.existingSecret is given: put the whole URL, or the password, into the Secret." .where .where) -}}
{{- end -}}
{{- if and (or .redis.tls.ca .redis.tls.clientCertificate) (not .redis.existingSecret) -}}
{{- fail (printf "%s.tls: certificates are read from %s.existingSecret, which is not set." .where .where) -}}
{{- end -}}
{{- end -}}
