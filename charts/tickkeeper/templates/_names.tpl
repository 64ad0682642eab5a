{{/* Names and labels. A component is `operator`, `worker-<pool>`, … */}}
{{- define "tickkeeper.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "tickkeeper.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "tickkeeper.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Roles of several releases must not meet in one cluster. */}}
{{- define "tickkeeper.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "tickkeeper.fullname" .) -}}
{{- end -}}

{{/* (dict "root" $ "component" "operator") */}}
{{- define "tickkeeper.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tickkeeper.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "tickkeeper.labels" -}}
{{ include "tickkeeper.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tickkeeper
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_") }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (dict "root" $ "image" <overrides, may be empty>) */}}
{{- define "tickkeeper.image" -}}
{{- $own := .image | default dict -}}
{{- $repository := $own.repository | default .root.Values.image.repository -}}
{{- $digest := $own.digest -}}
{{- if not (or $own.repository $own.tag $own.digest) -}}
{{- $digest = .root.Values.image.digest -}}
{{- end -}}
{{- if $digest -}}
{{- printf "%s@%s" $repository $digest -}}
{{- else -}}
{{- printf "%s:%s" $repository ($own.tag | default .root.Values.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "tickkeeper.operator.serviceAccount" -}}
{{- .Values.operator.serviceAccount.name | default (printf "%s-operator" (include "tickkeeper.fullname" .)) -}}
{{- end -}}

{{- define "tickkeeper.test.namespace" -}}
{{- .Values.test.namespace | default (first .Values.watchNamespaces) | default .Release.Namespace -}}
{{- end -}}
