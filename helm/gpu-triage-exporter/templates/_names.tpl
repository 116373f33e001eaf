{{- define "gpu-triage.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "gpu-triage.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if or (contains (include "gpu-triage.name" .) .Release.Name) (and (not .Values.nameOverride) (contains "gpu-triage" .Release.Name)) -}}
{{- /* "gpu-triage" says as much as "gpu-triage-gpu-triage-exporter". */ -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "gpu-triage.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gpu-triage.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gpu-triage.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: exporter
{{- end -}}

{{- define "gpu-triage.labels" -}}
{{- $own := include "gpu-triage.selectorLabels" . | fromYaml -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{- $_ := set $own "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- /* Becomes `job`, which the rules know the exporter by: no value overrides it. */ -}}
{{- $_ := set $own "app.kubernetes.io/part-of" .Chart.Name -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- mergeOverwrite (deepCopy .Values.commonLabels) $own | toYaml -}}
{{- end -}}

{{- define "gpu-triage.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "gpu-triage.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "gpu-triage.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "gpu-triage.scheme" -}}
{{- ternary "https" "http" .Values.web.tls -}}
{{- end -}}

{{/* Where `kubectl port-forward` brings the runbooks. An IP address, which web.allowedHosts always allows. */}}
{{- define "gpu-triage.forwarded" -}}
{{- printf "%s://127.0.0.1:%d/runbooks" (include "gpu-triage.scheme" .) (int .Values.web.port) -}}
{{- end -}}

{{/* Metadata of an object: the dictionary has root, name, and where they differ from the usual namespace, labels, annotations. */}}
{{- define "gpu-triage.metadata" -}}
name: {{ .name }}
namespace: {{ default .root.Release.Namespace .namespace }}
labels:
  {{- mergeOverwrite (include "gpu-triage.labels" .root | fromYaml) (default dict .labels) | toYaml | nindent 2 }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
