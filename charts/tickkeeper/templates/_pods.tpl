{{/* What the pods of every component have in common. */}}

{{/* (dict "root" $ "component" … "spec" <operator or pool>) */}}
{{- define "tickkeeper.scheduling" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .spec.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .spec.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .spec.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .spec.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
topologySpreadConstraints:
  {{- if .spec.topologySpreadConstraints }}
  {{- toYaml .spec.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "tickkeeper.selectorLabels" . | nindent 8 }}
  {{- end }}
{{- end -}}

{{/* The first answer comes after two seconds of a core. A full node gives a pod no more than it requests: a tenth. */}}
{{- define "tickkeeper.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 1
  failureThreshold: 180
livenessProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 2
  timeoutSeconds: 3
{{- end -}}

{{- define "tickkeeper.http.env" -}}
- name: TICKKEEPER_HTTP_HOST
  value: {{ .Values.http.host | quote }}
- name: TICKKEEPER_HTTP_PORT
  value: {{ .Values.http.port | quote }}
{{- end -}}

{{/* A pool with what it leaves to workerDefaults: (dict "root" $ "pool" $pool) */}}
{{- define "tickkeeper.pool" -}}
{{- mustMergeOverwrite (deepCopy .root.Values.workerDefaults) .pool | toYaml -}}
{{- end -}}
