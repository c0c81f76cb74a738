package stats

// QOSClass is a pod's quality of service class (k8s.io/api/core/v1 PodQOSClass).
type QOSClass string

// The classes. The empty class: unknown.
const (
	Guaranteed QOSClass = "Guaranteed"
	Burstable  QOSClass = "Burstable"
	BestEffort QOSClass = "BestEffort"
)
