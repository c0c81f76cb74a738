package admission

import (
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/stats"
)

// Node is what of the node changes only with the configuration. The zero value knows nothing.
type Node struct {
	Name       string            // empty: unknown
	Arch       string            // as Go calls it
	Configured map[string]string // labels of the configuration
	Taints     []v1.Taint
	Sysctls    *admit.Sysctls
	AppArmor   stats.Opt[bool]
}

// state is a node without pods. Beside a kubelet an API server has its name, labels and taints:
// here they are unknown. So are labels where nobody knows the host's name, which is one of them.
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

// Hostname is the node's, in a kubelet's form (pkg/util/node GetHostname). A process in a container
// of its own has another one, unless it shares the UTS namespace of process 1: then, and where that
// cannot be seen, it is empty.
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

// AppArmor reports whether the kernel enforces it, by /sys/module/apparmor/parameters/enabled, Y or
// N; a kernel without it has no such file. Absent: it cannot be read.
func AppArmor(sys string) stats.Opt[bool] {
	text, err := os.ReadFile(filepath.Join(sys, "module/apparmor/parameters/enabled"))
	if err != nil && !os.IsNotExist(err) {
		return stats.Opt[bool]{}
	}
	return stats.Some(strings.HasPrefix(string(text), "Y"))
}
