package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/e2e/build"
)

// account is a service account that a program runs as, with exactly the rights of its roles.
type account struct{ namespace, name string }

func (a account) user() string { return "system:serviceaccount:" + a.namespace + ":" + a.name }

// buildCluster builds jettison-cluster.
func buildCluster(t testing.TB) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "jettison-cluster")
	_, err := build.Run(t.Context(), moduleRoot(t), []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", program, "./cmd/jettison-cluster")
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func moduleRoot(t testing.TB) string {
	t.Helper()
	root, err := build.ModuleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// command runs a program to its end.
func command(t testing.TB, program string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), complaint.String(), cmd.ProcessState.ExitCode()
}

// awaitPermission waits until an account's roles allow a verb. The account itself sends no request.
func (c *Cluster) awaitPermission(as account, verb, group, resource, namespace string) {
	c.t.Helper()
	resource, part, _ := strings.Cut(resource, "/")
	c.Eventually(startDeadline, fmt.Sprintf("%s may %s %s", as.name, verb, resource), func(ctx context.Context) error {
		review, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: as.user(), ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: group, Resource: resource, Subresource: part, Namespace: namespace,
			}},
		}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = errors.New(review.Status.Reason)
		}
		return err
	})
}

// accountFile writes a kubeconfig of an account, with its own token.
func (c *Cluster) accountFile(name string, as account) string {
	c.t.Helper()
	return c.tokenFile(name, c.Token(as.namespace, as.name, nil))
}

func (c *Cluster) tokenFile(name, token string) (path string) {
	c.t.Helper()
	text, err := Kubeconfig(c.Bearer(token))
	if err == nil {
		path = c.path(name + ".conf")
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return path
}

// identity returns the audit log's identity of a token.
func identity(t testing.TB, token string) string {
	t.Helper()
	var claims struct{ JTI string }
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err == nil {
		err = json.Unmarshal(text, &claims)
	}
	if err != nil || claims.JTI == "" {
		t.Fatalf("token has no identity claim: %v", err)
	}
	return "JTI=" + claims.JTI
}

// replica is a jettison-cluster process that runs until the test ends. It is a part of the cluster
// by its name.
type replica struct {
	c                      *Cluster
	name, program, address string
	identity               string // of its token, in the audit log
}

// replica starts a replica as an account, and returns when it is ready.
func (c *Cluster) replica(program, name string, as account, args ...string) *replica {
	c.t.Helper()
	return c.replicaOn("127.0.0.1", program, name, as, args...)
}

// replicaOn starts such a replica, which serves on an address; empty: on all.
func (c *Cluster) replicaOn(host, program, name string, as account, args ...string) *replica {
	c.t.Helper()
	c.requireOwnCluster()
	ports, err := freePorts(name)
	if err != nil {
		c.t.Fatal(err)
	}
	token := c.Token(as.namespace, as.name, nil)
	r := &replica{c: c, name: name, program: program, address: fmt.Sprintf("127.0.0.1:%d", ports[name]), identity: identity(c.t, token)}
	err = c.run(c.t.Context(), part{
		name: name, ready: func() error {
			answer, err := http.Get("http://" + r.address + "/readyz")
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return errors.New(answer.Status)
			}
			return nil
		},
		argv: slices.Concat([]string{program}, args, []string{"--kubeconfig=" + c.tokenFile(name, token), fmt.Sprintf("--address=%s:%d", host, ports[name])}),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("log of %s:\n%s", name, build.Tail(r.log(), 6000))
		}
	})
	return r
}

// log returns the log so far.
func (r *replica) log() string {
	text, err := os.ReadFile(r.c.path(r.name + ".log"))
	if err != nil {
		r.c.t.Error(err)
	}
	return string(text)
}

// stop sends SIGTERM, and waits for the end.
func (r *replica) stop() {
	r.c.t.Helper()
	if err := r.c.processes[r.c.find(r.name)].stop(); err != nil {
		r.c.t.Error(err)
	}
}

// request is a request in the API server's audit log.
type request struct {
	Verb string
	User struct {
		Username string
		Extra    map[string][]string
	}
	ObjectRef                struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus           struct{ Code int }
	RequestURI               string
	RequestReceivedTimestamp time.Time
}

// by reports whether the request was made with a token of this identity.
func (r request) by(identity string) bool {
	return slices.Contains(r.User.Extra["authentication.kubernetes.io/credential-id"], identity)
}

// String returns "verb resource[/subresource] name".
func (r request) String() string {
	what := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		what += "/" + r.ObjectRef.Subresource
	}
	return r.Verb + " " + what + " " + r.ObjectRef.Name
}

// writes reports whether the request writes.
func (r request) writes() bool { return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" }

// audit is an API server's audit log.
type audit struct {
	t    testing.TB
	path string
}

// audited returns an audit log, and the API server's arguments that write it.
func audited(t testing.TB) (a *audit, args []string) {
	t.Helper()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	text := `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata, userGroups: ["system:serviceaccounts"]}, {level: Metadata, users: ["system:kube-controller-manager"]}]
`
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a = &audit{t, filepath.Join(dir, "log")}
	return a, []string{"--audit-policy-file=" + policy, "--audit-log-path=" + a.path}
}

// of returns the requests of a user so far.
func (a *audit) of(user string) (out []request) {
	a.t.Helper()
	text, err := os.ReadFile(a.path)
	if err != nil {
		a.t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			a.t.Fatal(err)
		}
		if r.User.Username == user {
			out = append(out, r)
		}
	}
	if lines.Err() != nil {
		a.t.Fatal(lines.Err())
	}
	return out
}

// wrote returns the writes of a user to objects other than Leases and events, sorted, each with its
// status code. It also checks that no request exceeded the user's roles.
func (a *audit) wrote(as account) (out []string) {
	a.t.Helper()
	for _, r := range a.of(as.user()) {
		if r.ResponseStatus.Code == http.StatusForbidden {
			a.t.Errorf("request forbidden by the account's roles: %v", r)
		}
		if r.writes() && r.ObjectRef.Resource != "leases" && r.ObjectRef.Resource != "events" {
			out = append(out, fmt.Sprint(r, " ", r.ResponseStatus.Code))
		}
	}
	slices.Sort(out)
	return out
}

// withPrefix returns the lines with a prefix.
func withPrefix(lines []string, prefix string) (out []string) {
	for _, l := range lines {
		if strings.HasPrefix(l, prefix) {
			out = append(out, l)
		}
	}
	return out
}
