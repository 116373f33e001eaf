{{- /*
Rules with `rules.overrides` laid over them, as `gpu-triage rules` does it (gpu_triage/alerting/build.py). What a file of
rules holds is data: the braces in it ({{ $labels.gpu }}) are Prometheus's, and are never rendered here.
*/}}

{{- /* A number without exponent and trailing zeros. Takes decimals and number. */}}
{{- define "gpu-triage.rules.plain" -}}
{{- regexReplaceAll "\\.?0+$" (printf (printf "%%.%df" .decimals) (float64 .number)) "" -}}
{{- end }}

{{- /* A duration as prose has it: 1 hour 30 minutes. */}}
{{- define "gpu-triage.rules.duration" -}}
{{- $words := dict "d" "day" "h" "hour" "m" "minute" "s" "second" }}
{{- $parts := list }}
{{- range regexFindAll "[0-9]+[dhms]" . -1 }}
{{- $number := regexFind "[0-9]+" . | atoi }}
{{- if $number }}
{{- $parts = append $parts (printf "%d %s%s" $number (get $words (regexFind "[dhms]" .)) (ternary "" "s" (eq $number 1))) }}
{{- end }}
{{- end }}
{{- join " " $parts | default "a moment" -}}
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

{{- /* Where an alert's runbook is. Takes overrides, name and fleet. */}}
{{- define "gpu-triage.rules.runbook" -}}
{{- $label := "\\{\\{ ?\\$labels\\.([a-zA-Z_][a-zA-Z0-9_]*) ?\\}\\}" }}
{{- $base := .overrides.runbook_base_url | default "http://{{ $labels.instance }}/runbooks" }}
{{- $url := printf "%s/%s" (regexReplaceAll "/+$" $base "") .name }}
{{- if and .fleet (regexMatch $label $url) }}
{{- $url = regexReplaceAll $label $url "{{ . | first | label `${1}` }}" }}
{{- printf "{{ with query `gpu_exporter_build_info` }}%s{{ else }}gpu-triage explain %s{{ end }}" $url .name -}}
{{- else }}
{{- $url -}}
{{- end }}
{{- end }}

{{- /* One alert, as YAML. Takes rule, overrides and tokens. */}}
{{- define "gpu-triage.rules.alert" -}}
{{- $rule := .rule }}
{{- $overrides := .overrides }}
{{- $own := get ($overrides.alerts | default dict) ($rule.key | default $rule.alert) | default dict }}
{{- if and $rule.judge (or $own.for $own.thresholds) }}
{{- fail (printf "rules.overrides.alerts.%s: for and thresholds are options of the exporter now; set judge.%s in its values (gpu-triage judge --print-config lists what there is)" $rule.key $rule.judge) }}
{{- end }}
{{- $for := $own.for | default $rule.for | default "" }}
{{- $seconds := include "gpu-triage.rules.seconds" $for | int }}
{{- if gt $seconds 604800 }}
{{- fail (printf "rules.overrides.alerts.%s.for: is %q; the longest is 7d" $rule.key $for) }}
{{- end }}
{{- $tokens := deepCopy .tokens }}
{{- $inText := dict "for" (include "gpu-triage.rules.duration" $for) }}
{{- range $name, $value := mergeOverwrite (dict) ($rule.thresholds | default dict) ($own.thresholds | default dict) }}
{{- $_ := set $tokens $name (include "gpu-triage.rules.plain" (dict "number" $value "decimals" 6)) }}
{{- $percent := include "gpu-triage.rules.plain" (dict "number" (mulf $value 100) "decimals" 4) }}
{{- $_ := set $inText (printf "%s:percent" $name) (printf "%s%%" $percent) }}
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
{{- $runbook := dict "overrides" $overrides "name" ($rule.page | default $rule.alert) "fleet" (eq ($rule.scope | default "") "fleet") }}
{{- $_ := set $annotations "runbook_url" (include "gpu-triage.rules.runbook" $runbook) }}
{{- if $overrides.grafana_base_url }}
{{- $base := regexReplaceAll "/+$" $overrides.grafana_base_url "" }}
{{- $_ := set $annotations "dashboard_url" (printf "%s%s" $base $annotations.dashboard_url) }}
{{- else }}
{{- $annotations = omit $annotations "dashboard_url" }}
{{- end }}
{{- $_ := set $rule "annotations" (mergeOverwrite (dict) $annotations ($overrides.annotations | default dict)) }}
{{- $rule = omit $rule "key" "scope" "thresholds" "for" "judge" "enabled" "page" }}
{{- if $seconds }}
{{- $_ := set $rule "for" $for }}
{{- end }}
{{- toYaml $rule -}}
{{- end }}
