{{- define "tickkeeper.network.ingress" -}}
- ports:
    - {protocol: TCP, port: http}
  {{- with .Values.networkPolicy.metricsFrom }}
  from: {{ toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "tickkeeper.network.dns" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end -}}

{{/* Takes the list of ports. */}}
{{- define "tickkeeper.network.ports" -}}
- ports:
    {{- range . }}
    - {protocol: TCP, port: {{ int . }}}
    {{- end }}
{{- end -}}
