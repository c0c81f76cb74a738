package vm

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Layout is the place of containers in the cgroup hierarchy.
type Layout int

// Layouts of a node.
const (
	BelowPods Layout = iota // in their pods' cgroups
	// SplitDrivers has pods of a kubelet with the cgroup driver systemd and a runtime with cgroupfs
	// (kubernetes#106514): the pods' slices stay empty. It needs Options.Systemd.
	SplitDrivers
	// NoPodCgroups has pods of a kubelet with cgroupsPerQOS: false, which have no cgroups and name no
	// parent to the runtime.
	NoPodCgroups
)

// splitDrivers restarts the runtime of SplitDrivers with the cgroup driver cgroupfs.
func (n *Node) splitDrivers(ctx context.Context) error {
	if n.layout != SplitDrivers {
		return nil
	}
	if !n.systemd {
		return errors.New("layout SplitDrivers needs systemd")
	}
	const config = "/etc/containerd/config.toml"
	if _, err := n.Shell(ctx, "sed -i 's/SystemdCgroup = true/SystemdCgroup = false/' "+config+" && grep -q 'SystemdCgroup = false' "+config+
		" && systemctl restart containerd"); err != nil {
		return err
	}
	return n.WaitRuntime(ctx)
}

// Main returns the cgroup of the pod's processes: its own, or that of its newest container outside.
func (p *Pod) Main() string {
	if len(p.Outside) > 0 {
		return p.Outside[len(p.Outside)-1]
	}
	return p.Cgroup
}

// findOutside asserts that a sandbox or container runs outside the pod's cgroup, with a Layout other
// than BelowPods, and adds its cgroup.
func (p *Pod) findOutside(ctx context.Context, id string) error {
	if p.node.layout == BelowPods {
		return nil
	}
	text, err := p.node.Shell(ctx, "cd /sys/fs/cgroup && busybox find . -type d -name '*"+id+"'")
	if err != nil {
		return err
	}
	at := strings.TrimPrefix(strings.TrimSpace(text), "./")
	if at == "" || strings.Contains(at, "\n") || strings.HasPrefix(at, p.Cgroup+"/") {
		return fmt.Errorf("cgroup of %s is %q, want one outside %s", id, at, p.Cgroup)
	}
	p.Outside = append(p.Outside, at)
	return nil
}
