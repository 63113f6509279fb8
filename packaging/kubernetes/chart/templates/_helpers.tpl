{{/* PROGRAM: what its objects are told by. */}}
{{- define "aliquot.labels" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: aliquot
{{- end }}

{{- define "aliquot.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What every container of ours may not do. */}}
{{- define "aliquot.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
{{- end }}

{{/* kube-scheduler's word for aliquot-kube-scheduler; urlPrefix is the caller's. */}}
{{- define "aliquot.extender" -}}
filterVerb: filter
prioritizeVerb: prioritize
bindVerb: bind
weight: 5
nodeCacheCapable: true
httpTimeout: 5s
managedResources:
- {name: {{ .Values.domain }}/gpu-mem}
- {name: {{ .Values.domain }}/gpu-share, ignoredByScheduler: true}
- {name: {{ .Values.domain }}/gpu}
{{- if .Values.nvidia }}
- {name: nvidia.com/gpu}
{{- end }}
{{- if .Values.gpushare }}
- {name: aliyun.com/gpu-mem}
- {name: aliyun.com/gpu-count}
{{- end }}
{{- end }}
