package cluster

import (
	"context"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/e2e/vm"
)

// Node is a node of the cluster with a real kubelet.
type Node struct {
	*vm.Node // nil: the cluster was started elsewhere
	Name     string
}

// NodeOptions configure Join. The zero value works.
type NodeOptions struct {
	MiB    int    // memory; 0: 1536
	Config string // more lines of its KubeletConfiguration (evictionHard)
	Args   []string
}

// nodeDeadline is ten times the time that a kubelet needs under emulation.
const nodeDeadline = 3 * time.Minute

// firstKubeletPort is the first port of kubelets: all guests share one address.
const firstKubeletPort = 10250

// Join boots a node in QEMU, on kernel JETTISON_KERNEL, joins its kubelet to the cluster, and
// returns when it is Ready. Its runtime has the images of the workload and the agent. The node is
// shut down when the test ends. A kernel OOM kill fails the test.
func (c *Cluster) Join(o NodeOptions) *Node {
	c.t.Helper()
	if c.dir == "" {
		return c.firstNode()
	}
	t, began, port := c.t, time.Now(), firstKubeletPort+c.nodes
	c.nodes++
	name := fmt.Sprintf("node-%d", c.nodes)
	if o.MiB == 0 {
		o.MiB = 1536
	}
	machine, err := vm.Boot(t.Context(), vm.Options{
		Kernel: os.Getenv("JETTISON_KERNEL"), Kubelet: true, MiB: o.MiB, Ports: []int{port},
		Reach: map[string]string{serviceAddress + ":443": fmt.Sprintf("127.0.0.1:%d", c.ports[APIServer])},
		Say:   func(format string, args ...any) { t.Logf(name+": "+format, args...) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { leave(c, machine) })
	c.egress.route(fmt.Sprintf("%s:%d", vm.GuestAddress, port), machine.Address(port))
	user := c.As("system:node:"+name, "system:nodes")
	user.Host = "https://" + serviceAddress
	kubeconfig, err := Kubeconfig(user)
	if err == nil {
		err = machine.Import(t.Context(), "/images/jettison.tar")
	}
	if err == nil {
		err = machine.JoinCluster(t.Context(), vm.MemberOptions{
			Name: name, Port: port, Kubeconfig: kubeconfig, CA: c.ca.pair.cert, Config: o.Config, Args: o.Args,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Eventually(nodeDeadline, name+" is Ready", func(ctx context.Context) error { return c.nodeReady(ctx, name) })
	t.Logf("%s is Ready after %.1f s", name, time.Since(began).Seconds())
	return &Node{Node: machine, Name: name}
}

func leave(c *Cluster, machine *vm.Node) {
	defer machine.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // the test's own context has ended
	defer cancel()
	for _, fault := range machine.Audit(ctx, false) {
		c.t.Error("audit of the node failed: ", fault)
	}
	if c.t.Failed() {
		c.t.Log("kubelet's log:\n" + machine.KubeletLog(40))
		c.t.Log("the runtime's log:\n" + machine.Tail(machine.Runtime.Log(), 20))
		c.t.Log("serial console:\n" + machine.Console())
	}
}

func (c *Cluster) nodeReady(ctx context.Context, name string) error {
	node, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == v1.NodeReady && condition.Status == v1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node's conditions are %v", node.Status.Conditions)
}

// firstNode returns a node of a cluster that was started elsewhere.
func (c *Cluster) firstNode() *Node {
	c.t.Helper()
	nodes, err := c.Client.CoreV1().Nodes().List(c.t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) == 0 {
		c.t.Fatalf("the cluster has no node (%v)", err)
	}
	name := nodes.Items[0].Name
	c.Eventually(nodeDeadline, name+" is Ready", func(ctx context.Context) error { return c.nodeReady(ctx, name) })
	return &Node{Name: name}
}
