{{/* The exporter's flags, one a line of a YAML list. */}}
{{- define "gpu-triage.args" -}}
{{- $v := .Values -}}
- serve
- {{ printf "--web.listen-address=:%v" (int $v.web.port) }}
- {{ printf "--web.telemetry-path=%s" $v.web.telemetryPath }}
{{- with $v.web.allowedHosts }}
{{- range prepend . (include "gpu-triage.fullname" $) }}
- {{ printf "--web.allowed-hosts=%s" . | quote }}
{{- end }}
{{- end }}
- {{ printf "--log.level=%s" $v.log.level }}
- {{ printf "--log.format=%s" $v.log.format }}
{{- if not $v.simulate }}
- --path.procfs=/host/proc
- --path.sysfs=/host/sys
{{- end }}
{{- with $v.web.configSecret }}
- {{ printf "--web.config.file=/etc/gpu-triage/web/%s" $v.web.configKey }}
{{- end }}
{{- range $flag, $value := dict "gpu-count" $v.expected.gpuCount "pcie-generation" $v.expected.pcieGeneration "pcie-width" $v.expected.pcieWidth }}
{{- if not (kindIs "invalid" $value) }}
- {{ printf "--expect.%s=%v" $flag (int $value) }}
{{- end }}
{{- end }}
{{- if not (kindIs "invalid" $v.expected.p2p) }}
- {{ printf "--expect.p2p=%v" $v.expected.p2p }}
{{- end }}
{{- range $finding, $settings := $v.judge }}
{{- range $name, $value := $settings }}
{{- /* Helm reads whole numbers as floating-point ones, and would write a million as 1e+06. */}}
{{- $text := ternary (toString $value) (int64 $value) (or (kindIs "string" $value) (ne (float64 $value) (float64 (int64 $value)))) }}
- {{ printf "--judge=%s.%s=%v" $finding $name $text | quote }}
{{- end }}
{{- end }}
{{- with $v.baseline.configMap }}
- {{ printf "--baseline.file=/etc/gpu-triage/baseline/%s" $v.baseline.key | quote }}
{{- end }}
{{- if $v.features.podResources.enabled }}
- --kubernetes.pod-resources-socket=/host/pod-resources/kubelet.sock
{{- end }}
{{- if $v.features.containerNames.enabled }}
- --kubernetes.container-logs=/host/container-logs
{{- end }}
{{- if $v.features.processMemoryLocality.enabled }}
- --collector.process_memory_locality
{{- end }}
{{- with $v.textfile.hostPath }}
- --collector.textfile.directory=/host/textfile
{{- end }}
{{- if include "gpu-triage.keepsState" . }}
- --state.directory=/var/lib/gpu-triage
{{- end }}
{{- with $v.simulate }}
- {{ printf "--simulate=%s" . | quote }}
{{- end }}
{{- with $v.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Whether there is a state directory: a simulated host may run where no folder of the node can be mounted. */}}
{{- define "gpu-triage.keepsState" -}}
{{- if and .Values.state.hostPath (not .Values.simulate) }}yes{{ end -}}
{{- end -}}

{{- define "gpu-triage.asRoot" -}}
{{- with .Values.features }}{{ if or .podResources.enabled .kernelLog.enabled .processMemoryLocality.enabled }}yes{{ end }}{{ end -}}
{{- end -}}

{{- define "gpu-triage.podSecurityContext" -}}
{{- $user := ternary 0 65534 (eq (include "gpu-triage.asRoot" .) "yes") -}}
{{- $own := dict "runAsNonRoot" (ne $user 0) "runAsUser" $user "runAsGroup" $user "fsGroup" $user -}}
{{- $_ := set $own "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- mergeOverwrite $own (deepCopy .Values.podSecurityContext) | toYaml -}}
{{- end -}}

{{- define "gpu-triage.securityContext" -}}
{{- $own := dict "readOnlyRootFilesystem" true -}}
{{- if include "gpu-triage.privileged" . -}}
{{- /* Kubernetes refuses a privileged container that may not gain privileges. */ -}}
{{- $_ := set $own "privileged" true -}}
{{- else -}}
{{- $capabilities := dict "drop" (list "ALL") -}}
{{- if .Values.features.processMemoryLocality.enabled }}{{ $_ := set $capabilities "add" (list "SYS_PTRACE") }}{{ end -}}
{{- $_ := set $own "capabilities" $capabilities -}}
{{- $_ := set $own "allowPrivilegeEscalation" false -}}
{{- end -}}
{{- mergeOverwrite $own (deepCopy .Values.securityContext) | toYaml -}}
{{- end -}}

{{/* A simulated host brings its own /proc and /sys, which it writes to /tmp. */}}
{{- define "gpu-triage.volumeMounts" -}}
{{- if .Values.simulate -}}
- {name: simulated, mountPath: /tmp}
{{- else -}}
- {name: proc, mountPath: /host/proc, readOnly: true}
- {name: sys, mountPath: /host/sys, readOnly: true}
{{- end }}
{{- if .Values.features.podResources.enabled }}
- {name: pod-resources, mountPath: /host/pod-resources, readOnly: true}
{{- end }}
{{- if .Values.features.containerNames.enabled }}
- {name: container-logs, mountPath: /host/container-logs, readOnly: true}
{{- end }}
{{- if .Values.features.kernelLog.enabled }}
- {name: kmsg, mountPath: /dev/kmsg, readOnly: true}
{{- end }}
{{- with .Values.textfile.hostPath }}
- {name: textfile, mountPath: /host/textfile, readOnly: true}
{{- end }}
{{- if include "gpu-triage.keepsState" . }}
- {name: state, mountPath: /var/lib/gpu-triage}
{{- end }}
{{- with .Values.baseline.configMap }}
- {name: baseline, mountPath: /etc/gpu-triage/baseline, readOnly: true}
{{- end }}
{{- with .Values.web.configSecret }}
- {name: web-config, mountPath: /etc/gpu-triage/web, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gpu-triage.volumes" -}}
{{- if .Values.simulate -}}
- {name: simulated, emptyDir: {medium: Memory, sizeLimit: 32Mi}}
{{- else -}}
- {name: proc, hostPath: {path: /proc, type: Directory}}
- {name: sys, hostPath: {path: /sys, type: Directory}}
{{- end }}
{{- with .Values.features.podResources }}{{ if .enabled }}
- name: pod-resources
  hostPath: {path: {{ .directory | quote }}, type: Directory}
{{- end }}{{ end }}
{{- with .Values.features.containerNames }}{{ if .enabled }}
- name: container-logs
  hostPath: {path: {{ .directory | quote }}, type: Directory}
{{- end }}{{ end }}
{{- if .Values.features.kernelLog.enabled }}
- {name: kmsg, hostPath: {path: /dev/kmsg, type: CharDevice}}
{{- end }}
{{- with .Values.textfile.hostPath }}
- name: textfile
  hostPath: {path: {{ . | quote }}, type: DirectoryOrCreate}
{{- end }}
{{- if include "gpu-triage.keepsState" . }}
- name: state
  hostPath: {path: {{ .Values.state.hostPath | quote }}, type: DirectoryOrCreate}
{{- end }}
{{- with .Values.baseline.configMap }}
- name: baseline
  configMap: {name: {{ . | quote }}}
{{- end }}
{{- with .Values.web.configSecret }}
- name: web-config
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Whether the container is privileged: SELinux does not confine it, and as user 0 it can write to any folder. */}}
{{- define "gpu-triage.privileged" -}}
{{- if or .Values.features.kernelLog.enabled .Values.securityContext.privileged }}yes{{ end -}}
{{- end -}}

{{/* The kubelet creates the state's folder as root, and fsGroup does not apply to folders of the node. */}}
{{- define "gpu-triage.initContainers" -}}
{{- $pod := include "gpu-triage.podSecurityContext" . | fromYaml -}}
{{- $security := dict "runAsNonRoot" false "runAsUser" 0 "readOnlyRootFilesystem" true "allowPrivilegeEscalation" false -}}
{{- $_ := set $security "capabilities" (dict "drop" (list "ALL") "add" (list "CHOWN")) -}}
{{- with .Values.securityContext.seLinuxOptions }}{{ $_ := set $security "seLinuxOptions" . }}{{ end -}}
- name: state
  image: {{ include "gpu-triage.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [chown, {{ printf "%v:%v" (int $pod.runAsUser) (int $pod.runAsGroup) | quote }}, /var/lib/gpu-triage]
  terminationMessagePolicy: FallbackToLogsOnError
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    {{- toYaml $security | nindent 4 }}
  volumeMounts:
    - {name: state, mountPath: /var/lib/gpu-triage}
{{- end -}}

{{/* A probe: the dictionary has root, path and timing. */}}
{{- define "gpu-triage.probe" -}}
{{- $own := dict -}}
{{- if .root.Values.web.clientAuth -}}
{{- $_ := set $own "tcpSocket" (dict "port" "metrics") -}}
{{- else -}}
{{- $_ := set $own "httpGet" (dict "path" .path "port" "metrics" "scheme" (include "gpu-triage.scheme" .root | upper)) -}}
{{- end -}}
{{- mergeOverwrite (deepCopy .timing) $own | toYaml -}}
{{- end -}}
