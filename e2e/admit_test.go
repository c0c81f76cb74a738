package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// A client of the socket learns the gate's decision by an exit code that a script can use: 0
// admitted, 3 rejected, 1 no answer. A member of socketGroup may query admission, but not with
// preemption.
func TestPromiseTheSocketSaysWhoIsAdmitted(t *testing.T) {
	n := startNode(t)
	n.startAgent(config(`socketGroup: "4001"`))
	n.shell("echo client:x:4001: >> /etc/group && echo client:x:4001:4001::/:/bin/sh >> /etc/passwd")
	const (
		pod      = "apiVersion: v1\nkind: Pod\n"
		small    = pod + "metadata: {name: small}\nspec: {containers: [{name: c, resources: {requests: {memory: 1Mi}}}]}\n"
		large    = pod + "metadata: {name: large}\nspec: {containers: [{name: c, resources: {requests: {cpu: 1k, memory: 1Ti}}}]}\n"
		critical = pod + "metadata: {name: critical, uid: nobody-knows}\nspec: {priority: 2000000000, containers: [{name: c}]}\n"
	)
	for _, c := range []struct {
		name, user, pod, flags string
		code                   int
		stdout, stderr         string
	}{
		{"there is room", "root", small, "", 0, "default/small is admitted\n", ""},
		{"there is none, and the first reason is told", "root", large, "", 3,
			"default/large is rejected: OutOfcpu: Node didn't have enough resource: cpu, requested: 1000000, used: ", ""},
		{"a member asks", "client", large, "-o json", 3, `"admit":false,"reason":"OutOfcpu"`, ""},
		{"a member wants others killed", "client", critical, "--preempt", 1, "", "status 403: forbidden: only root may preempt"},
		{"root does, for a pod that nobody knows", "root", critical, "--preempt", 1, "",
			`status 404: metadata.uid: neither the runtime nor a static manifest has a pod with the uid "nobody-knows"`},
		{"a stranger asks", "nobody", small, "", 1, "", "permission denied, run as root or join "},
		{"a malformed pod", "root", pod + "metadata: {name: a}\nspec: {overhead: {cpu: much}}\n", "", 1, "", `line 4: spec.overhead.cpu: want a quantity, got "much"`},
	} {
		if err := n.WriteFile(n.ctx, "/tmp/pod.yaml", []byte(c.pod)); err != nil {
			t.Fatal(err)
		}
		line := "/usr/local/bin/jettison admit --file /tmp/pod.yaml " + c.flags
		if c.user != "root" {
			line = fmt.Sprintf("chmod 644 /tmp/pod.yaml; su %s -c '%s'", c.user, line)
		}
		res, err := n.Exec(n.ctx, "/bin/sh", "-c", line)
		if err != nil {
			t.Fatal(err)
		}
		out, said := string(res.Stdout), string(res.Stderr)
		if res.Code != c.code || !strings.Contains(out, c.stdout) || !strings.Contains(said, c.stderr) || c.stdout == "" && out != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %d, %q, %q", c.name, res.Code, out, said, c.code, c.stdout, c.stderr)
		}
	}
}
