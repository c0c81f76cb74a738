{{/* Prints the reference of an image. Arguments: list $ NAME DIGEST */}}
{{- define "jettison.image" -}}
{{- $image := (index . 0).Values.image -}}
{{ $image.registry }}/{{ index . 1 }}{{ with index . 2 }}@{{ . }}{{ else }}:{{ $image.tag }}{{ end }}
{{- end }}

{{/* Sets the image and its pull settings in a pod of a manifest, and prints nothing. Arguments: list $ POD-SPEC NAME DIGEST */}}
{{- define "jettison.pod" -}}
{{- $image := (index . 0).Values.image }}
{{- $pod := index . 1 }}
{{- $container := first $pod.containers }}
{{- $_ := set $container "image" (include "jettison.image" (list (index . 0) (index . 2) (index . 3))) }}
{{- $_ := set $container "imagePullPolicy" $image.pullPolicy }}
{{- range $image.pullSecrets }}
{{- $_ := set $pod "imagePullSecrets" (append (get $pod "imagePullSecrets" | default list) (dict "name" .)) }}
{{- end }}
{{- end }}

{{/*
Ends the name of a ConfigMap in a checksum of its data, as kustomize does, also in the volume of its pod, and prints nothing. A changed
configuration then follows the rollout: running agents would read a changed ConfigMap again. Arguments: list CONFIG-MAP POD-SPEC
*/}}
{{- define "jettison.configMap" -}}
{{- $map := index . 0 }}
{{- $name := printf "%s-%s" $map.metadata.name (get $map "data" | toJson | sha256sum | trunc 10) }}
{{- range (index . 1).volumes }}
{{- with get . "configMap" }}{{ $_ := set . "name" $name }}{{ end }}
{{- end }}
{{- $_ := set $map.metadata "name" $name }}
{{- end }}

{{/* Sets the nodes and the rollout of a DaemonSet, and prints nothing. Arguments: list $ DAEMON-SET */}}
{{- define "jettison.daemonSet" -}}
{{- $values := (index . 0).Values }}
{{- $spec := (index . 1).spec }}
{{- $_ := set $spec "minReadySeconds" $values.rollout.minReadySeconds }}
{{- $_ := set $spec.updateStrategy.rollingUpdate "maxUnavailable" $values.rollout.maxUnavailable }}
{{- $_ := set $spec.template.spec "nodeSelector" (merge $spec.template.spec.nodeSelector ($values.nodeSelector | default dict)) }}
{{- end }}

{{/* Prints the agent's configuration; nothing if no value sets a field: the agent then uses the kubelet's. Argument: $ */}}
{{- define "jettison.agentConfig" -}}
{{- $parts := .Files.Get "manifests/agent/parts.yaml" | fromYaml }}
{{- $config := dict }}
{{- if .Values.bridge.enabled }}{{ $config = merge $config $parts.bridgeConfig }}{{ end }}
{{- if .Values.metrics.enabled }}{{ $config = merge $config $parts.scrapeConfig }}{{ end }}
{{- range $field, $value := .Values.agent.config }}
{{- if hasKey $config $field }}
{{- fail (printf "agent.config.%s: bridge.enabled or metrics.enabled sets this field: remove it" $field) }}
{{- end }}
{{- $_ := set $config $field $value }}
{{- end }}
{{- range $field, $value := ternary $parts.kubeletDefaults (dict) .Values.agent.kubeletDefaults }}
{{- if not (hasKey $config $field) }}{{ $_ := set $config $field $value }}{{ end }}
{{- end }}
{{- with $config }}{{ merge . $parts.header | toYaml }}{{ end }}
{{- end }}
