{{/* What an endpoint of a ServiceMonitor and of a PodMonitor have in common. */}}
{{- define "gpu-triage.endpoint" -}}
{{- $s := .Values.scrape -}}
port: metrics
path: {{ .Values.web.telemetryPath }}
scheme: {{ include "gpu-triage.scheme" . }}
interval: {{ $s.interval }}
scrapeTimeout: {{ $s.scrapeTimeout }}
honorLabels: {{ $s.honorLabels }}
{{- if .Values.web.tls }}{{ with $s.tlsConfig }}
tlsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}{{ end }}
{{- with $s.basicAuth }}
basicAuth:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $s.relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $s.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What a ServiceMonitor and a PodMonitor have in common beside that. */}}
{{- define "gpu-triage.monitorSpec" -}}
{{- $s := .Values.scrape -}}
jobLabel: {{ $s.jobLabel }}
namespaceSelector:
  matchNames: [{{ .Release.Namespace }}]
selector:
  matchLabels:
    {{- include "gpu-triage.selectorLabels" . | nindent 4 }}
{{- range $name := list "sampleLimit" "labelLimit" "labelNameLengthLimit" "labelValueLengthLimit" "targetLimit" }}
{{- with index $s $name }}
{{ $name }}: {{ int . }}
{{- end }}
{{- end }}
{{- with $s.bodySizeLimit }}
bodySizeLimit: {{ . }}
{{- end }}
{{- end -}}
