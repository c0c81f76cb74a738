package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/e2e/build"
)

// pageReader has the rights that docs/operate/read.md lists for jettison ui --node.
const pageReader = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: page, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: page, namespace: kube-system}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
`

const pageExec = `- {apiGroups: [""], resources: [pods/exec], verbs: [get, create]}
`

const pageBinding = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: page, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: page}
subjects: [{kind: ServiceAccount, name: page}]
`

// findTunnels prints the memory of each jettison tunnel on the node.
const findTunnels = `for p in /proc/[0-9]*; do
	if tr '\0' ' ' <$p/cmdline 2>/dev/null | grep -q '^/jettison tunnel'; then echo $p; grep -E 'VmRSS|RssAnon' $p/status; fi
done; true`

// From a machine with a kubeconfig and kubectl, the page shows the agent of a node, with exactly the documented rights. It follows the agent
// to a new pod. After the command's end no process of it remains here or on the node.
func TestThePageOfARemoteNode(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	n := c.Join(NodeOptions{})
	installAgent(t, c, n)
	program := filepath.Join(t.TempDir(), "jettison")
	if _, err := build.Run(t.Context(), moduleRoot(t), []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", program,
		"./cmd/jettison"); err != nil {
		t.Fatal(err)
	}
	apply := func(manifests string) {
		t.Helper()
		if out, err := c.Kubectl(t.Context(), manifests, "apply", "-f", "-"); err != nil {
			t.Fatalf("apply the account of the page: %v\n%s", err, out)
		}
	}
	as := account{"kube-system", "page"}
	apply(pageReader + pageBinding)
	c.awaitPermission(as, "list", "", "pods", as.namespace)
	t.Setenv("PATH", c.bin)
	args := []string{"ui", "--kubeconfig=" + c.accountFile("page", as), "--listen=127.0.0.1:0"}
	out, reason, code := command(t, program, append(args, "--node="+n.Name)...)
	if code != 1 || out != "" || !strings.Contains(reason, `cannot create resource "pods/exec"`) || !strings.Contains(reason, "get and create on pods/exec") {
		t.Errorf("without pods/exec: exit code %d, want 1 with the missing right: %s%s", code, out, reason)
	}
	t.Logf("without pods/exec: %s", reason)
	apply(pageReader + pageExec + pageBinding)
	c.awaitPermission(as, "create", "", "pods/exec", as.namespace)
	_, reason, code = command(t, program, append(args, "--node=no-such-node")...)
	if code != 1 || !strings.Contains(reason, "no-such-node has no pod of the agent") {
		t.Errorf("unknown node: exit code %d, want 1 with the node: %s", code, reason)
	}

	ui := exec.CommandContext(t.Context(), program, append(args, "--node="+n.Name)...)
	ui.Cancel, ui.WaitDelay = func() error { return ui.Process.Signal(syscall.SIGTERM) }, 10*time.Second
	var errs bytes.Buffer
	ui.Stderr = &errs
	stdout, err := ui.StdoutPipe()
	if err == nil {
		err = ui.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("read the page's address: %v: %v, %s", err, ui.Wait(), &errs)
	}
	t.Logf("address after %v", time.Since(began))
	ctx, cancel := context.WithTimeout(t.Context(), workloadDeadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.Replace(strings.TrimSpace(address), "/?", "/stream?", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := new(http.Client).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<24)
	until := func(parts ...string) {
		t.Helper()
		for lines.Scan() {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(lines.Text(), part) }) {
				return
			}
		}
		t.Fatalf("stream of the page ended before %q: %v", parts, lines.Err())
	}
	until(`"node":"`+n.Name+`"`, `"socket":"node `+n.Name+`"`, `"answers":true`)
	until(`"signal":"memory.available"`, `"observed":true`)
	until(`"thresholds":[{`) // the ranking
	t.Logf("page is complete after %v", time.Since(began))
	tunnels, err := n.Shell(t.Context(), findTunnels)
	if err != nil || strings.Count(tunnels, "VmRSS") != 1 {
		t.Errorf("tunnels on the node = %q, error %v, want one", tunnels, err)
	}
	t.Logf("tunnel on the node: %s", tunnels)

	old := agentPod(t, c)
	if err := c.Client.CoreV1().Pods(old.Namespace).Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(`"answers":false`)
	until(`"answers":true`)
	c.DaemonSetReady("kube-system", "jettison")
	if pod := agentPod(t, c); pod.Name == old.Name {
		t.Errorf("pod of the agent = %s, want a new one", pod.Name)
	}

	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", ui.Process.Pid))
	if err != nil {
		t.Error(err)
	}
	if err := ui.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := ui.Wait(); err != nil {
		t.Errorf("end of jettison ui after SIGINT = %v, want exit code 0: %s", err, &errs)
	}
	for _, child := range strings.Fields(string(children)) {
		if _, err := os.Stat("/proc/" + child); err == nil {
			t.Errorf("child %s of jettison ui still exists", child)
		}
	}
	c.Eventually(workloadDeadline, "the tunnel on the node has ended", func(ctx context.Context) error {
		out, err := n.Shell(ctx, findTunnels)
		if err == nil && out != "" {
			err = errors.New(out)
		}
		return err
	})
}
