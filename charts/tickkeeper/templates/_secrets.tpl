{{/*
Where Redis and Postgres are. Whatever may hold a credential is in a Secret, and pods get it from there: a Secret of the
user, or one that this release makes from the values given.
*/}}

{{/* The values of Redis for a pool, or of the release: (dict "root" $ "pool" <worker pool or nil>) */}}
{{- define "tickkeeper.redis" -}}
{{- $pool := dig "redis" dict (.pool | default dict) -}}
{{- if or $pool.url $pool.existingSecret -}}
{{- toYaml $pool -}}
{{- else -}}
{{- toYaml .root.Values.redis -}}
{{- end -}}
{{- end -}}

{{- define "tickkeeper.redis.ownSecret" -}}
{{- printf "%s-redis" (include "tickkeeper.fullname" .) -}}
{{- end -}}

{{- define "tickkeeper.redis.configured" -}}
{{- if or .Values.redis.url .Values.redis.existingSecret .Values.trial.redis.enabled -}}true{{- end -}}
{{- end -}}

{{/* Whether the pods depend on a Secret that this release makes: (dict "root" $ "pool" …) */}}
{{- define "tickkeeper.redis.fromValues" -}}
{{- if not (include "tickkeeper.redis" . | fromYaml).existingSecret -}}true{{- end -}}
{{- end -}}

{{- define "tickkeeper.redis.env" -}}
{{- $redis := include "tickkeeper.redis" . | fromYaml -}}
{{- $own := dig "redis" dict (.pool | default dict) -}}
{{- $plain := and $redis.url (or $redis.existingSecret $own.url) -}}
{{- $secret := $redis.existingSecret | default (ternary "" (include "tickkeeper.redis.ownSecret" .root) (not (empty $own.url))) -}}
- name: TICKKEEPER_REDIS_URL
  {{- if $plain }}
  value: {{ $redis.url | quote }}
  {{- else }}
  valueFrom:
    secretKeyRef: {name: {{ $secret }}, key: url}
  {{- end }}
{{- if $secret }}
- name: TICKKEEPER_REDIS_USERNAME
  valueFrom:
    secretKeyRef: {name: {{ $secret }}, key: username, optional: true}
- name: TICKKEEPER_REDIS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ $secret }}, key: password, optional: true}
{{- end }}
{{- if $redis.tls.ca }}
- name: TICKKEEPER_REDIS_CA_FILE
  value: /etc/tickkeeper/redis/ca.crt
{{- end }}
{{- if $redis.tls.clientCertificate }}
- name: TICKKEEPER_REDIS_CERT_FILE
  value: /etc/tickkeeper/redis/tls.crt
- name: TICKKEEPER_REDIS_KEY_FILE
  value: /etc/tickkeeper/redis/tls.key
{{- end }}
{{- end -}}

{{/* The volume with the certificates, where there are any */}}
{{- define "tickkeeper.redis.volume" -}}
{{- $redis := include "tickkeeper.redis" . | fromYaml -}}
{{- if or $redis.tls.ca $redis.tls.clientCertificate -}}
- name: redis-tls
  secret:
    secretName: {{ $redis.existingSecret }}
    items:
      {{- if $redis.tls.ca }}
      - {key: ca.crt, path: ca.crt}
      {{- end }}
      {{- if $redis.tls.clientCertificate }}
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
      {{- end }}
{{- end -}}
{{- end -}}

{{- define "tickkeeper.redis.mount" -}}
{{- if include "tickkeeper.redis.volume" . -}}
- {name: redis-tls, mountPath: /etc/tickkeeper/redis, readOnly: true}
{{- end -}}
{{- end -}}

{{- define "tickkeeper.database.ownSecret" -}}
{{- printf "%s-database" (include "tickkeeper.fullname" .) -}}
{{- end -}}

{{/* (dict "root" $ "pool" …) */}}
{{- define "tickkeeper.database.env" -}}
{{- $pool := dig "database" dict (.pool | default dict) -}}
{{- $given := ternary $pool .root.Values.database (not (empty $pool.existingSecret)) -}}
- name: TICKKEEPER_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ $given.existingSecret | default (include "tickkeeper.database.ownSecret" .root) }}
      key: {{ ternary $given.secretKey "url" (not (empty $given.existingSecret)) }}
{{- /* database.schema is where our own tables are: another store's are elsewhere, by its own default. */}}
{{- with $pool.schema | default (ternary .root.Values.database.schema "" (eq (dig "store" "tickkeeper" (.pool | default dict)) "tickkeeper")) }}
- name: TICKKEEPER_DATABASE_SCHEMA
  value: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "tickkeeper.database.configured" -}}
{{- if or .Values.database.url .Values.database.existingSecret .Values.trial.postgres.enabled -}}true{{- end -}}
{{- end -}}

{{/* Whether the release has to do with our own outbox: with no pools its workers are elsewhere. */}}
{{- define "tickkeeper.database.ours" -}}
{{- $stores := list -}}
{{- range .Values.workers -}}
{{- $stores = append $stores (include "tickkeeper.pool" (dict "root" $ "pool" .) | fromYaml).store -}}
{{- end -}}
{{- if or (empty $stores) (has "tickkeeper" $stores) -}}true{{- end -}}
{{- end -}}

{{/* The trial's passwords are drawn once and kept from then on: (dict "root" $ "secret" name "key" key) */}}
{{- define "tickkeeper.trial.password" -}}
{{- $found := lookup "v1" "Secret" .root.Release.Namespace .secret | default dict -}}
{{- with dig "data" .key "" $found -}}{{- b64dec . -}}{{- else -}}{{- randAlphaNum 32 -}}{{- end -}}
{{- end -}}

{{/* Restarts pods at each upgrade where the release makes their Secret: a digest of it would give the password away. */}}
{{- define "tickkeeper.restartAnnotation" -}}
{{- $redis := and (include "tickkeeper.redis.fromValues" .) (or .root.Values.redis.password (contains "@" .root.Values.redis.url)) -}}
{{- $database := and .pool .root.Values.database.url (not .root.Values.database.existingSecret) -}}
{{- if or $redis $database -}}
tickkeeper.dev/release-revision: {{ .root.Release.Revision | quote }}
{{- end -}}
{{- end -}}
