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

{{/* Annotations of a pod. Prometheus reads by prometheus.io/ without a key; checksums make pods anew when what they read changes. */}}
{{- define "penstock.annotations" -}}
{{- $own := dict }}
{{- if not .Values.auth.enabled }}
{{- $own = dict "prometheus.io/scrape" "true" "prometheus.io/port" "8000" "prometheus.io/path" "/metrics" }}
{{- end }}
{{- if .Values.modelsConfig }}{{ $_ := set $own "checksum/models" (.Values.modelsConfig | toJson | sha256sum) }}{{ end }}
{{- with .Values.auth }}
{{- if and .enabled .key (not .existingSecret) }}{{ $_ := set $own "checksum/key" (sha256sum .key) }}{{ end }}
{{- end }}
{{- with merge (deepCopy .Values.podAnnotations) $own }}{{ toYaml . }}{{ end }}
{{- end }}

{{/* The ports of the hosts of kvStore.redis, as a JSON array. */}}
{{- define "penstock.redisPorts" -}}
{{- $ports := list }}
{{- with .Values.kvStore.redis }}
{{- range splitList "," (regexReplaceAll "^rediss?://(.*@)?" . "" | splitList "/" | first) }}
{{- $ports = append $ports (regexFind ":[0-9]+$" . | trimPrefix ":" | default "6379" | int) }}
{{- end }}
{{- end }}
{{- $ports | uniq | toJson }}
{{- end }}
