{{- define "mildroute.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "mildroute.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mildroute.labels" -}}
{{ include "mildroute.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "mildroute.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "mildroute.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- /* Whether pods come and go by themselves: as the values say, else if there is a store. */}}
{{- define "mildroute.autoscales" -}}
{{- if kindIs "bool" .Values.autoscaling.enabled }}{{ if .Values.autoscaling.enabled }}true{{ end }}{{ else if .Values.store.url }}true{{ end }}
{{- end }}

{{- /* Whether there is one pod, so that limits are what keys.yaml says. */}}
{{- define "mildroute.isSingle" -}}
{{- if and (not (include "mildroute.autoscales" .)) (le (int .Values.replicaCount) 1) }}true{{ end }}
{{- end }}

{{- /* The section "store" of gateway.yaml. */}}
{{- define "mildroute.store" -}}
{{- $own := dict "url" .Values.store.url }}
{{- if .Values.store.passwordSecret }}{{ $_ := set $own "password_env" "STORE_PASSWORD" }}{{ end }}
{{- mergeOverwrite (.Values.store.settings | default dict) $own | toYaml }}
{{- end }}
