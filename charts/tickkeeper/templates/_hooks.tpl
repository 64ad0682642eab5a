{{/* Labels and annotations of a hook's object: (dict "root" $ "component" … "hook" … "weight" … "policy" …) */}}
{{- define "tickkeeper.hook.metadata" -}}
labels: {{ include "tickkeeper.labels" (dict "root" .root "component" .component) | nindent 2 }}
annotations:
  helm.sh/hook: {{ .hook }}
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: {{ .policy }}
{{- end -}}

{{- define "tickkeeper.uninstall.metadata" -}}
{{- include "tickkeeper.hook.metadata" (dict "root" .root "component" "uninstall" "hook" "post-delete" "weight" .weight "policy" "before-hook-creation,hook-succeeded,hook-failed") -}}
{{- end -}}

{{- define "tickkeeper.test.metadata" -}}
{{- include "tickkeeper.hook.metadata" (dict "root" .root "component" "test" "hook" "test" "weight" .weight "policy" .policy) -}}
{{- end -}}
