{{/* What the operator does with TickSchedules, in one namespace or in all. */}}
{{- define "tickkeeper.operator.rules" -}}
- apiGroups: [tickkeeper.dev]
  resources: [tickschedules]
  verbs: [get, list, watch, patch] # patch: its finalizer
- apiGroups: [tickkeeper.dev]
  resources: [tickschedules/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- if .Values.secretRefs.enabled }}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get] # spec.redis.secretRef
{{- end }}
{{- end -}}
