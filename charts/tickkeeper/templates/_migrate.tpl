{{/* The pod of the migration: (dict "root" $ "component" "migrate" "spec" <scheduling> "secret" … "key" …) */}}
{{- define "tickkeeper.migrate.pod" -}}
metadata:
  labels: {{ include "tickkeeper.labels" . | nindent 4 }}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext: {{ toYaml .root.Values.podSecurityContext | nindent 4 }}
  {{- include "tickkeeper.scheduling" . | nindent 2 }}
  containers:
    - name: migrate
      image: {{ include "tickkeeper.image" (dict "root" .root) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      # A database that is still starting is asked again after a second; what cannot be used (2) is not.
      command: [sh, -c]
      args:
        - |
          for _ in $(seq 60); do
            tickkeeper outbox migrate; code=$?
            [ $code = 1 ] || exit $code
            sleep 1
          done
          exit 1
      securityContext: {{ toYaml .root.Values.securityContext | nindent 8 }}
      env:
        - name: TICKKEEPER_DATABASE_URL
          valueFrom:
            secretKeyRef: {name: {{ .secret }}, key: {{ .key }}}
        - name: TICKKEEPER_DATABASE_SCHEMA
          value: {{ .root.Values.database.schema | quote }}
      resources: {{ toYaml .root.Values.migrations.resources | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 16Mi}
{{- end -}}
