package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Hollow runs a node without a machine: kubemark, a kubelet's own code with a fake runtime. It is
// Ready within a second and uses 80 MiB. Its pods run as soon as they are scheduled, and end as
// soon as they are deleted. It is a part of the cluster by its name.
func (c *Cluster) Hollow(name string) {
	c.t.Helper()
	c.requireOwnCluster()
	ports, err := freePorts(name)
	if err != nil {
		c.t.Fatal(err)
	}
	kubeconfig, err := Kubeconfig(c.As("system:node:"+name, "system:nodes"))
	if err != nil {
		c.t.Fatal(err)
	}
	conf, temp := c.path(name+".conf"), c.path(name)
	if err := os.WriteFile(conf, kubeconfig, 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Mkdir(temp, 0o700); err != nil {
		c.t.Fatal(err)
	}
	err = c.run(c.t.Context(), part{
		name: name, env: []string{"TMPDIR=" + temp}, // for its files and sockets
		ready: func() error {
			ctx, cancel := context.WithTimeout(c.t.Context(), nodeDeadline)
			defer cancel()
			return c.nodeReady(ctx, name)
		},
		argv: []string{
			filepath.Join(c.bin, "kubemark"), "--morph=kubelet", "--name=" + name, "--kubeconfig=" + conf,
			fmt.Sprintf("--kubelet-port=%d", ports[name]), "--kubelet-read-only-port=0", "--use-host-image-service=false",
			"--kube-api-qps=200", "--kube-api-burst=400",
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
}
