{{- /*
Rules with `rules.overrides` laid over them, as `gpu-triage rules` does it (gpu_triage/alerting/build.py). What a file of
rules holds is data: the braces in it ({{ $labels.gpu }}) are Prometheus's, and are never rendered here.
*/}}

{{- /* A number without exponent and trailing zeros. Takes decimals and number. */}}
{{- define "gpu-triage.rules.plain" -}}
{{- regexReplaceAll "\\.?0+$" (printf (printf "%%.%df" .decimals) (float64 .number)) "" -}}
{{- end }}

{{- /* Seconds of a duration. */}}
{{- define "gpu-triage.rules.seconds" -}}
{{- $lengths := dict "d" 86400 "h" 3600 "m" 60 "s" 1 }}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+[dhms]" . -1 }}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | atoi) (get $lengths (regexFind "[dhms]" .))) }}
{{- end }}
{{- $sum -}}
{{- end }}

{{- /* Tokens that stand in any rule, as YAML. Takes the overrides. */}}
{{- define "gpu-triage.rules.tokens" -}}
{{- $job := .job | default ".*gpu-triage.*" }}
{{- if not (mustRegexMatch $job "") }}{{- /* Fails where it is no regular expression. */}}{{- end }}
{{- $cluster := .cluster_label | default "cluster" }}
{{- $replicas := .replica_labels | default list }}
{{- $clusters := prepend $replicas $cluster | join ", " }}
{{- $fleet := printf "%s, job" $clusters }}
{{- $own := list .labels }}
{{- range $alert := .alerts | default dict }}
{{- $own = append $own $alert.labels }}
{{- end }}
{{- range $labels := $own }}
{{- range $name := append $replicas $cluster }}
{{- if hasKey ($labels | default dict) $name }}
{{- fail (printf "rules.overrides: the label %s tells targets apart; choose another name for yours" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- dict
      "target" (printf "%s, instance" $fleet)
      "subject" (concat (list $fleet "instance" "drill" "workload") (.routing_labels | default list) | join ", ")
      "fleet" $fleet
      "clusters" $clusters
      "cluster_label" $cluster
      "fleet_hosts" (include "gpu-triage.rules.plain" (dict "number" (.fleet_hosts | default 10) "decimals" 6))
      "fleet_share" (include "gpu-triage.rules.plain" (dict "number" (.fleet_share | default 0.25) "decimals" 6))
      "job" ($job | replace "\\" "\\\\" | replace "\"" "\\\"")
    | toYaml -}}
{{- end }}

{{- /* A text with its tokens replaced. Takes text and tokens. */}}
{{- define "gpu-triage.rules.filled" -}}
{{- $text := .text }}
{{- range $name, $value := .tokens }}
{{- $text = replace (printf "${%s}" $name) $value $text }}
{{- end }}
{{- $text -}}
{{- end }}

{{- /*
Where runbooks are read, as YAML. base: the URL that they are below; empty if a reader's browser reaches no exporter, as
it is for the pod network. command: what prints a runbook; kubectl picks a pod that is ready. Takes the root.
*/}}
{{- define "gpu-triage.runbooks" -}}
{{- $overrides := .Values.rules.overrides | default dict }}
{{- $named := list }}
{{- range .Values.scrape.relabelings }}
{{- if eq (.targetLabel | default "") "instance" }}{{ $named = .sourceLabels | default (list "") }}{{ end }}
{{- end }}
{{- $base := "" }}
{{- if hasKey $overrides "runbook_base_url" }}
{{- $base = regexReplaceAll "/+$" $overrides.runbook_base_url "" }}
{{- else if not $named }}{{- /* No relabeling sets instance to the node's name: it is the pod's address. */}}
{{- $base = printf "%s://{{ $labels.instance }}/runbooks" (include "gpu-triage.scheme" .) }}
{{- else if and .Values.hostNetwork (eq (first $named) "__meta_kubernetes_pod_node_name") }}
{{- $base = printf "%s://{{ $labels.instance }}:%d/runbooks" (include "gpu-triage.scheme" .) (int .Values.web.port) }}
{{- end }}
{{- $command := printf "kubectl exec --namespace %s daemonset/%s -- gpu-triage explain" .Release.Namespace (include "gpu-triage.fullname" .) }}
{{- dict "base" $base "command" ($overrides.runbook_command | default $command) | toYaml -}}
{{- end }}

{{- /* An alert's link to its runbook, or the command for it. Takes runbooks (see above), cluster_label, name, fleet and elsewhere. */}}
{{- define "gpu-triage.rules.runbook" -}}
{{- $label := "\\{\\{ ?\\$labels\\.([a-zA-Z_][a-zA-Z0-9_]*) ?\\}\\}" }}
{{- $url := printf "%s/%s" .runbooks.base .name }}
{{- $command := printf "%s %s" .runbooks.command .name }}
{{- if not .runbooks.base }}
{{- $command -}}
{{- else if and .elsewhere (regexMatch $label $url) }}
{{- $url = regexReplaceAll $label $url "{{ . | first | label `${1}` }}" }}
{{- $other := ternary "" ",instance!=%q" .fleet }}
{{- $its := ternary "" " $labels.instance" .fleet }}
{{- $anywhere := ternary "`topk(1, gpu_exporter_build_info)`" "printf `topk(1, gpu_exporter_build_info{instance!=%q})` $labels.instance" .fleet }}
{{- printf "{{ with printf `topk(1, gpu_exporter_build_info{%s=%%q,job=%%q%s})` $labels.%s $labels.job%s | query }}%s{{ else }}" .cluster_label $other .cluster_label $its $url -}}
{{- printf "{{ with %s | query }}%s{{ else }}%s{{ end }}{{ end }}" $anywhere $url $command -}}
{{- else }}
{{- $url -}}
{{- end }}
{{- end }}

{{- /* One alert, as YAML. Takes rule, overrides, tokens and runbooks. */}}
{{- define "gpu-triage.rules.alert" -}}
{{- $rule := .rule }}
{{- $overrides := .overrides }}
{{- $own := get ($overrides.alerts | default dict) ($rule.key | default $rule.alert) | default dict }}
{{- if and $rule.judge (or $own.for $own.thresholds) }}
{{- fail (printf "rules.overrides.alerts.%s: the exporter decides this; set judge.%s in the chart's values (gpu-triage judge --print-config lists what there is)" $rule.key $rule.judge) }}
{{- end }}
{{- $for := $own.for | default $rule.for | default "" }}
{{- $seconds := include "gpu-triage.rules.seconds" $for | int }}
{{- if gt $seconds 604800 }}
{{- fail (printf "rules.overrides.alerts.%s.for: is %q; the longest is 7d" $rule.key $for) }}
{{- end }}
{{- $tokens := deepCopy .tokens }}
{{- $inText := dict "alertname" $rule.alert }}
{{- range $name, $value := mergeOverwrite (dict) ($rule.thresholds | default dict) ($own.thresholds | default dict) }}
{{- $_ := set $tokens $name (include "gpu-triage.rules.plain" (dict "number" $value "decimals" 6)) }}
{{- end }}
{{- $_ := set $rule "expr" (include "gpu-triage.rules.filled" (dict "text" $rule.expr "tokens" $tokens)) }}
{{- $labels := $rule.labels | default dict }}
{{- if $own.severity }}
{{- $_ := set $labels "severity" $own.severity }}
{{- end }}
{{- $_ := set $rule "labels" (mergeOverwrite (dict) $labels ($overrides.labels | default dict) ($own.labels | default dict)) }}
{{- $annotations := $rule.annotations | default dict }}
{{- range $name := list "summary" "description" "dashboard_url" }}
{{- if hasKey $annotations $name }}
{{- $text := include "gpu-triage.rules.filled" (dict "text" (get $annotations $name) "tokens" (merge $inText $tokens)) }}
{{- $_ := set $annotations $name $text }}
{{- end }}
{{- end }}
{{- $runbook := dict "runbooks" .runbooks "cluster_label" .tokens.cluster_label "name" $rule.alert "fleet" (eq ($rule.scope | default "") "fleet") "elsewhere" (or $rule.scope $rule.unreachable) }}
{{- $_ := set $annotations "runbook_url" (include "gpu-triage.rules.runbook" $runbook) }}
{{- if $overrides.grafana_base_url }}
{{- $base := regexReplaceAll "/+$" $overrides.grafana_base_url "" }}
{{- $_ := set $annotations "dashboard_url" (printf "%s%s" $base $annotations.dashboard_url) }}
{{- else }}
{{- $annotations = omit $annotations "dashboard_url" }}
{{- end }}
{{- $_ := set $rule "annotations" (mergeOverwrite (dict) $annotations ($overrides.annotations | default dict)) }}
{{- $rule = omit $rule "key" "scope" "unreachable" "thresholds" "for" "judge" "enabled" }}
{{- if $seconds }}
{{- $_ := set $rule "for" $for }}
{{- end }}
{{- toYaml $rule -}}
{{- end }}
