package vm

import (
	"context"
	"errors"
	"fmt"
)

// GuestAddress is every guest's address in QEMU's user network.
const GuestAddress = "10.0.2.15"

// memberConfig configures a kubelet that belongs to a cluster. The API server authorizes the
// clients of its API.
const memberConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: ` + StaticPods + `
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
kubeletCgroups: /kubelet
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /etc/kubernetes/ca.crt}}
authorization: {mode: Webhook}
failSwapOn: false
makeIPTablesUtilChains: false
resolvConf: /etc/resolv.conf
`

// MemberOptions configure JoinCluster.
type MemberOptions struct {
	Name       string // of the node
	Port       int    // of the kubelet's API; one of Options.Ports
	Kubeconfig []byte // of the node's user, with an address of Options.Reach
	CA         []byte // PEM of the CA that signs the API server's client certificate
	Config     string // more lines of its KubeletConfiguration (evictionHard); no field of memberConfig may recur
	Args       []string
}

// JoinCluster runs a kubelet, on a node booted with Options.Kubelet, that registers the node with
// an API server, in the cgroup /kubelet. It returns before the registration. Pods without the
// host's network also reach Options.Reach.
func (n *Node) JoinCluster(ctx context.Context, o MemberOptions) error {
	if n.systemd {
		return errors.New("join a cluster: not on a node with systemd: the kubelet's configuration is for the driver cgroupfs")
	}
	for path, content := range map[string][]byte{
		"/etc/kubernetes/kubelet.yaml": fmt.Appendf(nil, "%sport: %d\n%s", memberConfig, o.Port, o.Config),
		"/etc/kubernetes/kubelet.conf": o.Kubeconfig,
		"/etc/kubernetes/ca.crt":       o.CA,
	} {
		if err := n.WriteFile(ctx, path, content); err != nil {
			return err
		}
	}
	line := "echo 1 > /proc/sys/net/ipv4/conf/eth0/proxy_arp; mkdir -p " + StaticPods + " /sys/fs/cgroup/kubelet && " +
		"echo $$ > /sys/fs/cgroup/kubelet/cgroup.procs && exec kubelet --config=/etc/kubernetes/kubelet.yaml " +
		"--kubeconfig=/etc/kubernetes/kubelet.conf --node-ip=" + GuestAddress + ` "$@"`
	args := append([]string{"/bin/sh", "-c", line, "sh", "--hostname-override=" + o.Name}, o.Args...)
	pid, err := n.Start(ctx, KubeletLogPath, args...) // the shell execs the kubelet
	if err != nil {
		return fmt.Errorf("join a cluster: start the kubelet: %w", err)
	}
	n.kubeletPID, n.kubelet = pid, true
	return nil
}
