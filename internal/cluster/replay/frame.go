package replay

import (
	"fmt"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/internal/base/strict"
)

// Frame is the state of a cluster at a time. An absent list is unchanged, with the decided actions
// applied.
type Frame struct {
	Time   string               `json:"time"` // RFC 3339
	Nodes  []v1.Node            `json:"nodes"`
	Leases []coordination.Lease `json:"leases"`
	Pods   []v1.Pod             `json:"pods"`

	at time.Time
}

// check validates a frame that is valid JSON. It returns the field and its fault.
func (f *Frame) check() (field, fault string) {
	at, err := strict.RequireTime(f.Time)
	if err != nil {
		return "time", err.Error()
	}
	f.at = at
	nodes, leases, pods, uids := map[string]int{}, map[string]int{}, map[string]int{},
		map[types.UID]int{}
	for i := range f.Nodes {
		if field, fault := checkName(&f.Nodes[i].ObjectMeta, "nodes", i, f.Nodes[i].Name, nodes); fault != "" {
			return field, fault
		}
	}
	for i := range f.Leases {
		l := &f.Leases[i]
		if field, fault := checkName(&l.ObjectMeta, "leases", i, l.Namespace+"/"+l.Name, leases); fault != "" {
			return field, fault
		}
	}
	for i := range f.Pods {
		p := &f.Pods[i]
		if p.Namespace == "" {
			p.Namespace = metav1.NamespaceDefault
		}
		if field, fault := checkName(&p.ObjectMeta, "pods", i, p.Namespace+"/"+p.Name, pods); fault != "" {
			return field, fault
		}
		before, duplicate := uids[p.UID]
		switch field := fmt.Sprintf("pods[%d].metadata.uid", i); {
		case p.UID == "":
			return field, "missing"
		case duplicate:
			return field, fmt.Sprintf("%.64q is not unique, first in pods[%d]", p.UID, before)
		}
		uids[p.UID] = i
	}
	return "", ""
}

// checkName rejects an object without a name, or with the name of another one.
func checkName(m *metav1.ObjectMeta, list string, i int, full string, seen map[string]int) (field,
	fault string) {
	field = fmt.Sprintf("%s[%d].metadata.name", list, i)
	if m.Name == "" {
		return field, "missing"
	}
	if before, duplicate := seen[full]; duplicate {
		return field, fmt.Sprintf("%.128q is not unique, first in %s[%d]", full, list, before)
	}
	seen[full] = i
	return "", ""
}
