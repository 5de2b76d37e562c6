{{- define "classad-hydrator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The full name: release and chart, or the release alone if its name contains the chart's. */}}
{{- define "classad-hydrator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "classad-hydrator.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "classad-hydrator.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "classad-hydrator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "classad-hydrator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "classad-hydrator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "classad-hydrator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "classad-hydrator.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "classad-hydrator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "classad-hydrator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "classad-hydrator.image" -}}
{{- $name := .Values.image.repository }}
{{- with .Values.image.registry }}
{{- $name = printf "%s/%s" . $name }}
{{- end }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $name .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $name (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The scraped endpoint of a ServiceMonitor or PodMonitor; the argument is a list: the chart's context, its settings. */}}
{{- define "classad-hydrator.endpoint" -}}
- port: http
  path: /metrics
  interval: {{ .interval }}
  {{- with .scrapeTimeout }}
  scrapeTimeout: {{ . }}
  {{- end }}
  {{- if .authorization }}
  authorization:
    credentials:
      {{- toYaml .authorization | nindent 6 }}
  {{- end }}
  relabelings:
    - targetLabel: job       # the job name in the alerts
      replacement: classad-hydrator
    {{- with .relabelings }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .metricRelabelings }}
  metricRelabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
