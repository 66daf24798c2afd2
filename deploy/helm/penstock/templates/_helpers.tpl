{{- define "penstock.name" -}}
{{- if contains "penstock" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-penstock" (.Release.Name | trunc 43 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end }}

{{- define "penstock.secret" -}}
{{ .Values.auth.existingSecret | default (printf "%s-key" (include "penstock.name" .)) }}
{{- end }}

{{/* The most replicas that there can be. */}}
{{- define "penstock.most" -}}
{{ if .Values.autoscaling.enabled }}{{ .Values.autoscaling.maxReplicas }}{{ else }}{{ .Values.replicas }}{{ end }}
{{- end }}

{{/* "yes" where a volume is mounted that pods of one node only can have. */}}
{{- define "penstock.oneNode" -}}
{{- range list .Values.persistence.models .Values.kvStore.volume }}{{ if and .enabled (not (has "ReadWriteMany" .accessModes)) }}yes{{ end }}{{ end }}
{{- end }}

{{/* What --kv-store is given. */}}
{{- define "penstock.kvStore" -}}
{{- $tiers := list }}
{{- with .Values.kvStore }}
{{- if .memory }}{{ $tiers = append $tiers (printf "memory:%s" .memory) }}{{ end }}
{{- if .volume.enabled }}{{ $tiers = append $tiers (printf "/kv:%s" .volume.mostBytes) }}{{ end }}
{{- if .redis }}{{ $tiers = append $tiers .redis }}{{ end }}
{{- end }}
{{- join "," $tiers }}
{{- end }}
