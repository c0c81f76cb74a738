package cluster

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"jettison/e2e/build"
)

// client returns a client of the API server with a configuration.
func client(t testing.TB, c *rest.Config) kubernetes.Interface {
	t.Helper()
	out, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The API server alone: it identifies each client by its credentials and authorizes it by RBAC. A
// token bound to a node names the node.
func TestTheAPIServerKnowsWhoAsks(t *testing.T) {
	c := Start(t, Options{})
	c.requireOwnCluster()
	release, err := build.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	version, err := c.Client.Discovery().ServerVersion()
	if err != nil || version.GitVersion != release.Kubernetes || !strings.HasPrefix(release.Kubernetes, "v1."+version.Minor+".") {
		t.Fatalf("version of the API server = %v, %v", version, err)
	}
	const node = "some-node"
	account := metav1.ObjectMeta{Name: "somebody", Namespace: "default"}
	_, err = c.Client.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	if err == nil {
		_, err = c.Client.CoreV1().ServiceAccounts("default").Create(t.Context(), &v1.ServiceAccount{ObjectMeta: account}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []struct {
		config       *rest.Config
		name, atNode string
	}{
		{c.Admin, "admin", ""},
		{c.As("somebody", "some-group"), "somebody", ""},
		{c.Bearer(c.Token("default", "somebody", nil)), "system:serviceaccount:default:somebody", ""},
		{c.Bearer(c.NodeToken("default", "somebody", node)), "system:serviceaccount:default:somebody", node},
	} {
		review, err := client(t, who.config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("self subject review of %s: %v", who.name, err)
			continue
		}
		user := review.Status.UserInfo
		if at := strings.Join(user.Extra["authentication.kubernetes.io/node-name"], ","); user.Username != who.name || at != who.atNode {
			t.Errorf("API server identifies %s of %q as %s of %q", who.name, who.atNode, user.Username, at)
		}
		_, err = client(t, who.config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if allowed := err == nil; allowed != (who.name == "admin") || !allowed && !apierrors.IsForbidden(err) {
			t.Errorf("list of nodes by %s: unexpected result %v", who.name, err)
		}
	}
}

// A hanging part does not answer, a killed one refuses connections, and a restarted one has its
// data.
func TestOutagesOfTheAPIServer(t *testing.T) {
	c := Start(t, Options{})
	c.requireOwnCluster()
	object := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := c.Client.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Client.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
		return err
	}
	c.Pause(APIServer)
	if err := ask(); err == nil {
		t.Error("a hanging API server answers, want a timeout")
	}
	c.Resume(APIServer)
	c.Eventually(startDeadline, "the API server answers again", func(context.Context) error { return ask() })
	c.Kill(APIServer)
	if err := ask(); err == nil {
		t.Error("a killed API server answers, want an error")
	}
	c.Again(APIServer)
	if err := ask(); err != nil {
		t.Error(err)
	}
	c.Kill(Etcd)
	c.Again(Etcd)
	c.Eventually(startDeadline, "etcd has what it had", func(context.Context) error { return ask() })
}

// All parts, and a node with a fake runtime.
func TestAHollowNodeRunsADeployment(t *testing.T) {
	c := Start(t, Options{Controllers: MostControllers, Scheduler: true})
	c.requireOwnCluster()
	c.Hollow("hollow")
	c.Deploy("web", 2, "sleep")
	c.Available("web", 2)
	pods, err := c.Pods(t.Context(), "default", "app=web")
	if err != nil || len(pods) != 2 || pods[0].Spec.NodeName != "hollow" {
		t.Errorf("pods of the Deployment: %v, have %d", err, len(pods))
	}
	release, err := build.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl(t.Context(), "", "get", "nodes", "--no-headers"); err != nil || !strings.Contains(out, release.Kubernetes) {
		t.Errorf("output of kubectl get nodes = %q, %v", out, err)
	}
}

// childVariable is set in the process that TestAClusterDiesWithItsProcess starts and kills.
const childVariable = "JETTISON_CHILD"

// The cluster ends with the process that started it, even after SIGKILL, which runs no clean-up.
func TestAClusterDiesWithItsProcess(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		c := Start(t, Options{})
		for _, p := range c.processes {
			fmt.Println("process", p.pid)
		}
		fmt.Println("folder", c.dir)
		select {} // until killed
	}
	if testing.Short() || os.Getenv("JETTISON_KUBECONFIG") != "" {
		t.Skip("needs a separate cluster: run make e2e-cluster")
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=5m")
	child.Env = append(os.Environ(), childVariable+"=1")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "process "); ok {
			pid, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		if dir, ok := strings.CutPrefix(lines.Text(), "folder "); ok {
			defer os.RemoveAll(dir)
			break
		}
	}
	err = child.Process.Kill()
	if waitErr := child.Wait(); len(pids) != 2 || err != nil {
		t.Fatalf("processes started by the child = %v (%v, %v)", pids, err, waitErr)
	}
	(&Cluster{t: t}).Eventually(time.Minute, "nothing of it is left", func(context.Context) error {
		for _, pid := range pids {
			if running(pid) {
				return fmt.Errorf("process %d still runs after its parent process ended", pid)
			}
		}
		return nil
	})
}

// running reports whether a process exists and is not a zombie.
func running(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ") && syscall.Kill(pid, 0) == nil
}
