package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"jettison/e2e/build"
)

// Options configure a cluster. The zero value runs only etcd and kube-apiserver: authentication,
// RBAC, admission, tokens, watches, and only the service accounts that the test makes.
type Options struct {
	// Controllers that kube-controller-manager runs, as for its flag --controllers; empty: it does
	// not run.
	Controllers string
	Scheduler   bool // runs kube-scheduler
	// NodeTaints keeps admission TaintNodesByCondition enabled: each new node has the taint
	// not-ready until the controller node-lifecycle removes it.
	NodeTaints bool
	// Args are further arguments of a part, by its name.
	Args map[string][]string
	Env  []string // further environment of each part (GOGC=50)
}

// MostControllers has all controllers except those that mark nodes and evict from them, which would
// disturb tests.
const MostControllers = "*,-node-lifecycle-controller,-taint-eviction-controller"

// Names of the parts, for Options.Args, Kill and similar.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// Addresses as a guest in QEMU's user network sees them. The services' network is inside the
// guest's, so that QEMU can forward its first address, that of the API server's own service:
// kubelets and pods reach it without kube-proxy.
const (
	serviceNetwork = "10.0.2.64/27"
	serviceAddress = "10.0.2.65"
	hostAddress    = "10.0.2.2"
)

// Cluster is a running cluster. It ends with its test. Its methods are for the test's own
// goroutine, unless documented otherwise.
type Cluster struct {
	Admin  *rest.Config         // of the administrator, without a rate limit
	Client kubernetes.Interface // of the administrator, too; for any goroutine

	t         testing.TB
	dir       string // of data, secrets and logs; empty: the cluster was started elsewhere
	bin       string // of the programs
	kubeconf  string // path of the administrator's kubeconfig
	ports     map[string]int
	ca        *authority
	http      *http.Client // the administrator's, for ready checks
	egress    *egress
	processes []*process // in the order of their start
	nodes     int        // number of nodes that joined
}

// Start runs a cluster until the test ends, and returns when the requested parts are ready: 4 s for
// all parts. It skips under -short. The programs are built on first use: 590 s of CPU time.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane: run make e2e-cluster")
	}
	if file := os.Getenv("JETTISON_KUBECONFIG"); file != "" {
		return existing(t, file)
	}
	bin, err := build.ControlPlane(t.Context(), t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for try := 0; ; try++ {
		c := &Cluster{t: t, bin: bin}
		err := c.start(t.Context(), o)
		if err == nil {
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(c.logTails())
				}
				if err := c.stop(); err != nil {
					t.Error(err)
				}
			})
			t.Logf("%d parts of the cluster are ready after %.1f s", len(c.processes), time.Since(began).Seconds())
			return c
		}
		err = errors.Join(err, c.stop())
		// Another process may have bound a port that was free a moment ago. Only that failure is
		// retried.
		if try == 3 || !strings.Contains(err.Error(), "address already in use") {
			t.Fatalf("start the parts of a cluster: %v", err)
		}
	}
}

func (c *Cluster) start(ctx context.Context, o Options) (err error) {
	if c.dir, err = os.MkdirTemp("", "cluster-"); err != nil {
		return err
	}
	if c.ports, err = freePorts(Etcd, "peers", APIServer, ControllerManager, Scheduler); err != nil {
		return err
	}
	if err := c.secrets(); err != nil {
		return err
	}
	if c.egress, err = newEgress(c.path("egress.yaml"), c.path("egress.sock")); err != nil {
		return err
	}
	if c.Client, err = kubernetes.NewForConfig(c.Admin); err != nil {
		return err
	}
	for _, p := range c.parts(o) {
		p.argv = append(append([]string{filepath.Join(c.bin, p.name)}, p.argv...), o.Args[p.name]...)
		p.env = o.Env
		if err := c.run(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// run starts a part. It belongs to the cluster even if it does not become ready.
func (c *Cluster) run(ctx context.Context, p part) error {
	run, err := start(ctx, p, c.dir)
	if run != nil {
		c.processes = append(c.processes, run)
	}
	return err
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// url returns the URL of a part's API on this machine.
func (c *Cluster) url(part string) string { return fmt.Sprintf("https://127.0.0.1:%d", c.ports[part]) }

// parts returns the parts that the options request, in start order.
func (c *Cluster) parts(o Options) []part {
	out := []part{c.etcd(), c.apiServer(o)}
	if o.Controllers != "" {
		out = append(out, c.controllerManager(o))
	}
	if o.Scheduler {
		out = append(out, part{
			name: Scheduler, ready: c.answers(c.url(Scheduler) + "/readyz"),
			argv: append(c.asUser(Scheduler), "--leader-elect=false"),
		})
	}
	return out
}

// etcd does not sync to disk, and elects itself immediately, which otherwise takes up to a second.
func (c *Cluster) etcd() part {
	clients, peers := fmt.Sprintf("http://127.0.0.1:%d", c.ports[Etcd]), fmt.Sprintf("http://127.0.0.1:%d", c.ports["peers"])
	return part{name: Etcd, ready: c.answers(clients + "/health"), argv: []string{
		"--name=test", "--data-dir=" + c.path("etcd"), "--unsafe-no-fsync", "--heartbeat-interval=10", "--election-timeout=100",
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients, "--listen-peer-urls=" + peers,
		"--initial-advertise-peer-urls=" + peers, "--initial-cluster=test=" + peers, "--quota-backend-bytes=8589934592", "--log-level=warn",
	}}
}

func (c *Cluster) apiServer(o Options) part {
	args := []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.ports[Etcd]),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports[APIServer]), "--advertise-address=" + hostAddress,
		"--tls-cert-file=" + c.path("apiserver.crt"), "--tls-private-key-file=" + c.path("apiserver.key"),
		"--client-ca-file=" + c.path("ca.crt"), "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path("accounts.crt"), "--service-account-signing-key-file=" + c.path("accounts.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-cluster-ip-range=" + serviceNetwork, "--endpoint-reconciler-type=none", "--profiling=false",
		"--kubelet-client-certificate=" + c.path("kubelet-client.crt"), "--kubelet-client-key=" + c.path("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP", "--egress-selector-config-file=" + c.path("egress.yaml"),
	}
	if !o.NodeTaints {
		args = append(args, "--disable-admission-plugins=TaintNodesByCondition")
	}
	return part{name: APIServer, argv: args, ready: c.answers(c.url(APIServer) + "/readyz")}
}

func (c *Cluster) controllerManager(o Options) part {
	healthy := c.answers(c.url(ControllerManager) + "/healthz")
	return part{
		name: ControllerManager, ready: func() error {
			return errors.Join(healthy(), c.namespaceReady("default"), c.namespaceReady("kube-system"))
		},
		argv: append(c.asUser(ControllerManager), "--use-service-account-credentials",
			"--service-account-private-key-file="+c.path("accounts.key"), "--root-ca-file="+c.path("ca.crt"),
			"--cluster-signing-cert-file="+c.path("ca.crt"), "--cluster-signing-key-file="+c.path("ca.key"),
			"--controllers="+o.Controllers, "--leader-elect=false"),
	}
}

// asUser returns the arguments with which a part uses the API server under its own name, and
// serves. It does not look up client CAs in the cluster: without aggregated API servers it would
// log errors about that endlessly.
func (c *Cluster) asUser(name string) []string {
	conf := c.path(name + ".conf")
	return []string{
		"--kubeconfig=" + conf, "--authentication-kubeconfig=" + conf, "--authorization-kubeconfig=" + conf, "--profiling=false",
		"--authentication-skip-lookup", "--client-ca-file=" + c.path("ca.crt"),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports[name]), "--kube-api-qps=1000", "--kube-api-burst=2000",
	}
}

// namespaceReady returns nil if pods can be created in a namespace. The health of
// kube-controller-manager does not show that.
func (c *Cluster) namespaceReady(namespace string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, account := c.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
	_, root := c.Client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	return errors.Join(account, root)
}

// answers returns a check that an address answers 200 to the administrator.
func (c *Cluster) answers(url string) func() error {
	return func() error {
		res, err := c.http.Get(url)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, res.Status)
		}
		return nil
	}
}

// stop ends everything, the last started first, and removes its folder.
func (c *Cluster) stop() (err error) {
	for _, p := range slices.Backward(c.processes) {
		err = errors.Join(err, p.stop())
	}
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
	if c.egress != nil {
		c.egress.close()
	}
	if c.dir == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// logTails returns the ends of the parts' logs.
func (c *Cluster) logTails() string {
	var out strings.Builder
	for _, p := range c.processes {
		fmt.Fprintf(&out, "log of %s:\n%s\n", p.name, p.tail())
	}
	return out.String()
}

// freePorts finds loopback ports without a listener, one for each name.
func freePorts(names ...string) (map[string]int, error) {
	out := map[string]int{}
	for _, name := range names {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out[name] = l.Addr().(*net.TCPAddr).Port
	}
	return out, nil
}

// Eventually polls check every tenth of a second until it returns nil. It fails the test with the
// awaited state and the last one seen.
func (c *Cluster) Eventually(limit time.Duration, what string, check func(ctx context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for last := errors.New("no result yet"); ; {
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil { // the error of an interrupted check is useless
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.t.Fatalf("waited %v, want %s within that time: %v", limit, what, last)
		}
	}
}
