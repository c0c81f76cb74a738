package admission

import (
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/stats"
)

// Node has the data of the node that changes only with the configuration. In the zero value all of
// it is unknown.
type Node struct {
	Name       string            // empty: unknown
	Arch       string            // in Go's notation (GOARCH)
	Configured map[string]string // labels of the configuration
	Taints     []v1.Taint
	Sysctls    *admit.Sysctls
	AppArmor   stats.Opt[bool]
}

// state returns a node without pods. With a kubelet, name, labels and taints belong to the API
// server and are unknown here. Labels are also unknown without a hostname, which is one of them.
func (n *Node) state(kubelet bool) admit.NodeState {
	out := admit.NodeState{Sysctls: n.Sysctls, AppArmor: n.AppArmor}
	if kubelet {
		return out
	}
	out.Name, out.Taints = n.Name, n.Taints
	if _, named := n.Configured[v1.LabelHostname]; named || n.Name != "" {
		out.Labels = admit.Labels(n.Name, n.Arch, n.Configured)
	}
	return out
}

// Hostname returns the node's name in the kubelet's form (pkg/util/node GetHostname). It is empty
// unless the process shares the UTS namespace of process 1: in a separate namespace it sees the
// name of the container.
func Hostname(proc string) string {
	own, err := os.Readlink(filepath.Join(proc, "self/ns/uts"))
	first, firstErr := os.Readlink(filepath.Join(proc, "1/ns/uts"))
	if err != nil || firstErr != nil || own != first {
		return ""
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(name))
}

// AppArmor reports whether the kernel enforces AppArmor, from
// /sys/module/apparmor/parameters/enabled (Y or N). A kernel without AppArmor lacks the file. The
// result is absent if the file cannot be read.
func AppArmor(sys string) stats.Opt[bool] {
	text, err := os.ReadFile(filepath.Join(sys, "module/apparmor/parameters/enabled"))
	if err != nil && !os.IsNotExist(err) {
		return stats.Opt[bool]{}
	}
	return stats.Some(strings.HasPrefix(string(text), "Y"))
}
