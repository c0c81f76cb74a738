package reclaim

import (
	"fmt"
	"slices"
	"strings"
)

// PodOfLogDir returns the UID in the name of a pod's log directory, NAMESPACE_NAME_UID (kubelet
// pkg/kubelet/kuberuntime/helpers.go BuildPodLogsDirectory): a label, a subdomain, and a UUID or
// the 32 digits that the kubelet gives a static pod (pkg/kubelet/config/common.go applyDefaults).
// None of them contains "_". "": the name has another form.
func PodOfLogDir(name string) string {
	namespace, rest, _ := strings.Cut(name, "_")
	pod, uid, _ := strings.Cut(rest, "_")
	if len(name) > 255 || len(namespace) > 63 || !isLabel(namespace) || !isUID(uid) {
		return ""
	}
	for label := range strings.SplitSeq(pod, ".") {
		if !isLabel(label) {
			return ""
		}
	}
	return uid
}

// isLabel reports whether a text has only characters of a DNS label.
func isLabel(text string) bool {
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || i == 0 || i == len(text)-1) {
			return false
		}
	}
	return text != ""
}

// isUID reports whether a text is a lower-case UUID or 32 hexadecimal digits.
func isUID(text string) bool {
	if len(text) != 36 && len(text) != 32 {
		return false
	}
	for i := range len(text) {
		c := text[i]
		hyphen := len(text) == 36 && (i == 8 || i == 13 || i == 18 || i == 23)
		if hyphen != (c == '-') || !hyphen && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// planLogs removes the log directories of pods that are gone or evicted. The kubelet uses any text
// after the last "_" as the UID, so it also removes directories of other programs (weakness 21).
func (w *planner) planLogs() {
	names := slices.Clone(w.look.LogDir)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		uid := PodOfLogDir(name)
		if uid == "" {
			w.addLeft(fmt.Sprintf("log directory entry %.128q", name),
				"not the name of a pod's directory, namespace_name_uid")
			continue
		}
		reason, ok := w.contentReason(uid)
		if !ok || !w.look.PodsSynced {
			continue
		}
		pod := strings.Replace(name[:len(name)-len(uid)-1], "_", "/", 1)
		w.plan.Steps = append(w.plan.Steps, Step{Action: RemoveLogs, ID: name, PodUID: uid, Name: pod,
			Reason: reason, Why: podReasonText[reason]})
	}
}
