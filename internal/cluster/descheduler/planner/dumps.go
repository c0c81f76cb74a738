package planner

import (
	"bytes"
	"encoding/json"
)

// Lines around the logs of a container in the output of "kubectl cluster-info dump"
// (k8s.io/kubectl/pkg/cmd/clusterinfo/clusterinfo_dump.go, v0.36).
const (
	logStart = "==== START logs for container "
	logEnd   = "==== END logs for container "
)

// withoutLogs returns the output of "kubectl cluster-info dump" without the logs of containers.
// Other texts are unchanged.
func withoutLogs(text []byte) []byte {
	var out []byte
	for {
		at := lineWith(text, logStart)
		if at < 0 && out == nil {
			return text
		}
		if at < 0 {
			return append(out, text...)
		}
		out = append(out, text[:at]...)
		first, log, _ := bytes.Cut(text[at:], []byte("\n"))
		last := logEnd + string(first[len(logStart):])
		end := lineWith(log, last)
		if end < 0 { // the last line of the log has no end
			end = bytes.Index(log, []byte(last))
		}
		if end < 0 {
			return out // the dump ends within the log
		}
		text = log[end+len(last):]
	}
}

// lineWith returns the index of the first line that starts with a prefix; -1: none.
func lineWith(text []byte, prefix string) int {
	if bytes.HasPrefix(text, []byte(prefix)) {
		return 0
	}
	if at := bytes.Index(text, []byte("\n"+prefix)); at >= 0 {
		return at + 1
	}
	return -1
}

// fields are the fields of a JSON object that plans read. nil: the whole value.
type fields map[string]fields

// and returns the fields with further ones, read as a whole.
func (f fields) and(names ...string) fields {
	for _, name := range names {
		f[name] = nil
	}
	return f
}

var (
	usedContainers = fields{"ports": nil, "resources": fields{}.and("requests", "limits")}.
			and("name", "image", "restartPolicy")
	usedStatuses = fields{"state": fields{
		"waiting":    fields{}.and("reason"),
		"terminated": fields{}.and("reason", "exitCode"),
	}}.and("name", "restartCount")
	usedSpecs = map[string]fields{
		"Node": fields{}.and("unschedulable", "taints"),
		"Pod": fields{
			"containers": usedContainers, "initContainers": usedContainers,
			"volumes": fields{"hostPath": {}, "emptyDir": {}, "ephemeral": {},
				"persistentVolumeClaim": fields{}.and("claimName")}.and("name"),
		}.and("nodeName", "schedulerName", "priorityClassName", "priority", "nodeSelector", "affinity", "tolerations",
			"topologySpreadConstraints", "resourceClaims", "overhead", "resources"),
		"PersistentVolumeClaim": fields{}.and("storageClassName", "volumeName"),
		"PersistentVolume":      fields{}.and("nodeAffinity"),
		"PodDisruptionBudget": fields{}.and("selector", "minAvailable", "maxUnavailable",
			"unhealthyPodEvictionPolicy"),
	}
	usedStatus = map[string]fields{
		"Node": fields{"conditions": fields{}.and("type", "status")}.and("allocatable", "capacity"),
		"Pod": fields{
			"containerStatuses": usedStatuses, "initContainerStatuses": usedStatuses,
			"ephemeralContainerStatuses": usedStatuses,
			"conditions":                 fields{}.and("type", "status", "reason", "lastTransitionTime"),
		}.and("phase", "reason", "qosClass", "startTime"),
		"PodDisruptionBudget": fields{"conditions": fields{}.and("type", "status")}.and(
			"observedGeneration", "disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"),
	}
)

// usedPart returns the part of an object that plans read. Other fields may be malformed, for
// example in a dump without secrets.
func usedPart(kind string, document []byte) ([]byte, error) {
	used := fields{
		"metadata": fields{}.and("name", "namespace", "uid", "labels", "annotations", "generation",
			"creationTimestamp", "deletionTimestamp", "ownerReferences"),
		"value": nil, // of a PriorityClass
	}
	if spec, ok := usedSpecs[kind]; ok {
		used["spec"] = spec
	}
	if status, ok := usedStatus[kind]; ok {
		used["status"] = status
	}
	var object any
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	if err := d.Decode(&object); err != nil {
		return nil, err
	}
	prune(object, used)
	return json.Marshal(object)
}

// prune removes the fields of a value that are not used.
func prune(value any, used fields) {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			if part, ok := used[key]; !ok {
				delete(v, key)
			} else if part != nil {
				prune(field, part)
			}
		}
	case []any:
		for _, item := range v {
			prune(item, used)
		}
	}
}
