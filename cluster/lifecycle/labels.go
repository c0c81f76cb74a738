package lifecycle

import v1 "k8s.io/api/core/v1"

// derivedLabels maps labels to the labels that they copy (labelReconcileInfo, 1.37.2).
var derivedLabels = map[string]string{"beta.kubernetes.io/os": v1.LabelOSStable,
	"beta.kubernetes.io/arch": v1.LabelArchStable}

func (s *step) writeLabels(v *view) {
	set := map[string]string{}
	for label, source := range derivedLabels {
		value, ok := v.node.Labels[source]
		if current, exists := v.node.Labels[label]; ok && (!exists || current != value) {
			set[label] = value
		}
	}
	if len(set) > 0 && s.begin(v.record, WriteLabels) {
		s.out.Labels = append(s.out.Labels, Labels{Node: v.node.Name, UID: v.node.UID, Set: set})
	}
}
