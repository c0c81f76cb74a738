package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/admit"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/agent/serve/socket"
)

// byName admits pods named "good". With preemption it also admits pods named "critical".
type byName struct {
	asked []string // kind of query, namespace/name, and the UID if the file has one
}

func (b *byName) Ask(_ context.Context, p *v1.Pod, _ podstore.Role) (admit.Result, error) {
	return b.answer("ask", p)
}

func (b *byName) Preempt(_ context.Context, p *v1.Pod) (admit.Result, error) {
	return b.answer("preempt", p)
}

func (b *byName) answer(how string, p *v1.Pod) (admit.Result, error) {
	uid := string(p.UID)
	if rest, ok := strings.CutPrefix(uid, "asked-"); ok && len(rest) > 20 {
		uid = "new"
	}
	b.asked = append(b.asked, fmt.Sprint(how, " ", p.Namespace, "/", p.Name, " ", uid))
	switch {
	case p.Name == "good", p.Name == "critical" && how == "preempt":
		return admit.Result{Admit: true}, nil
	case p.Name == "early":
		return admit.Result{}, errors.New("the node was not looked at")
	}
	return admit.Result{Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu, requested: 2,\nused: 1, capacity: 1"}, nil
}

const outOfCPU = "OutOfcpu: Node didn't have enough resource: cpu, requested: 2, used: 1, capacity: 1\n"

// TestAdmit checks query, output and exit code for valid and invalid pod files.
func TestAdmit(t *testing.T) {
	const (
		pod    = "apiVersion: v1\nkind: Pod\n"
		runs   = "\nspec: {containers: [{name: c}]}\n"
		object = `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"c"}]},`
	)
	dir, err := os.MkdirTemp("", "j")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path, pods, b := filepath.Join(dir, "s"), podstore.New(), &byName{}
	server, err := socket.Listen(socket.Options{Path: path, Pods: pods, Admission: b})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	pods.SetManifests([]*v1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "m", Namespace: "a", Name: "critical"}}})
	file := filepath.Join(dir, "pod")
	for _, c := range []struct {
		name, text, flags string
		code              int
		stdout, stderr    string
		asked             string
	}{
		{"hand-written YAML", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: good\nspec:\n  containers:\n  - name: c\n    image: x\n", "", 0, "default/good is admitted\n", "", "ask default/good new"},
		{"only a name", pod + "metadata: {name: good}" + runs, "", 0, "default/good is admitted\n", "", "ask default/good new"},
		{"namespace and UID", pod + "metadata: {name: good, namespace: a, uid: u}" + runs, "", 0, "a/good is admitted\n", "", "ask a/good u"},
		{"JSON", object + `"metadata":{"name":"bad","namespace":null}}`, "", 3, "default/bad is rejected: " + outOfCPU, "", "ask default/bad new"},
		{"JSON out", object + `"metadata":{"name":"bad","uid":"u"}}`, "-o json", 3,
			`{"uid":"u","admit":false,"reason":"OutOfcpu","message":"Node didn't have enough resource: cpu, requested: 2,\nused: 1, capacity: 1"}` + "\n", "", "ask default/bad u"},
		{"JSON out, admitted", object + `"metadata":{"name":"good","uid":"u"}}`, "-o json", 0, `{"uid":"u","admit":true,"reason":"","message":""}` + "\n", "", "ask default/good u"},
		{"a field of a newer API", pod + "metadata: {name: good}\nspec: {shiny: 1, containers: [{name: c}]}", "", 0, "default/good is admitted\n",
			`jettison: admit: FILE: unknown field "spec.shiny" ignored`, "ask default/good new"},
		{"preempted for", pod + "metadata: {name: critical, namespace: a, uid: m}" + runs, "--preempt", 0, "a/critical is admitted\n", "", "preempt a/critical m"},
		{"not preempted for", pod + "metadata: {name: critical, namespace: a, uid: m}" + runs, "", 3, "a/critical is rejected: " + outOfCPU, "", "ask a/critical m"},

		{"preemption without a UID", pod + "metadata: {name: critical}" + runs, "--preempt", 1, "", "jettison: admit: FILE: metadata.uid: missing: --preempt needs the UID", ""},
		{"preemption for an unknown pod", pod + "metadata: {name: critical, uid: x}" + runs, "--preempt", 1, "",
			`status 404: metadata.uid: neither the runtime nor a static manifest has a pod with the uid "x"`, ""},
		{"no decision", pod + "metadata: {name: early}" + runs, "", 1, "", "status 503: the node was not looked at: try again", "ask default/early new"},
		{"no name", pod + "metadata: {namespace: a}" + runs, "", 1, "", "jettison: admit: FILE: metadata.name: missing", ""},
		{"generateName", pod + "metadata: {generateName: web-}" + runs, "", 1, "", "jettison: admit: FILE: metadata.name: missing", ""},
		{"invalid name", pod + "metadata: {name: Web}" + runs, "", 1, "", `jettison: admit: FILE: metadata.name: "Web": a lowercase RFC 1123`, ""},
		{"no kind", "apiVersion: v1\nmetadata: {name: good}" + runs, "", 1, "", `jettison: admit: FILE: apiVersion "v1", kind "": want v1, Pod`, ""},
		{"no container", pod + "metadata: {name: good}\nspec: {}\n", "", 1, "", "jettison: admit: FILE: spec.containers: missing", ""},
		{"misspelt spec", pod + "metadata: {name: good}\nspecs: {containers: [{name: c}]}\n", "", 1, "",
			`jettison: admit: FILE: spec.containers: missing; unknown field "specs"`, ""},
		{"output of a chart", "---\n# Source: a.yaml\n---\n# Source: b.yaml\n" + pod + "metadata: {name: good}" + runs + "---\n", "", 0,
			"default/good is admitted\n", "", "ask default/good new"},
		{"empty file", "", "", 1, "", "jettison: admit: FILE: empty text: want one pod", ""},
		{"null", "null", "", 1, "", `jettison: admit: FILE: apiVersion "", kind "": want v1, Pod`, ""},
		{"no metadata", pod + "metadata: null", "", 1, "", "jettison: admit: FILE: metadata.name: missing", ""},
		{"a list", "- a\n", "", 1, "", "jettison: admit: FILE: line 1: the pod: want an object, got a list", ""},
		{"no YAML", "a: b: c", "", 1, "", "jettison: admit: FILE: not YAML: mapping values are not allowed in this context", ""},
		{"another kind", "kind: Deployment\napiVersion: apps/v1\n", "", 1, "", `jettison: admit: FILE: apiVersion "apps/v1", kind "Deployment": want v1, Pod`, ""},
		{"a wrong quantity", "metadata: {name: a}\nspec: {overhead: {cpu: -1}}", "", 1, "", `jettison: admit: FILE: line 2: spec.overhead.cpu: quantity "-1" is negative`, ""},
		{"text for a number", pod + "metadata: {name: a}\nspec:\n  containers:\n  - name: c\n    ports:\n    - hostPort: http\n", "", 1, "",
			`jettison: admit: FILE: line 8: spec.containers[0].ports[0].hostPort: want a whole number of 32 bits, got "http"`, ""},
		{"text for a number in JSON", "{\"apiVersion\": \"v1\",\n\"kind\": \"Pod\",\n\"spec\": {\n\t\"priority\": \"high\"}}", "", 1, "",
			`jettison: admit: FILE: line 4: spec.priority: want a whole number of 32 bits, got "high"`, ""},
		{"10 MB", "metadata: {name: a}\n#" + strings.Repeat("x", 10<<20), "", 1, "", "jettison: admit: FILE: larger than 1048576 bytes", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			b.asked = nil
			var stdout, stderr bytes.Buffer
			args := append([]string{"admit", "--file", file, "--socket", path}, strings.Fields(c.flags)...)
			code := execute(t.Context(), args, &stdout, &stderr)
			errText := strings.ReplaceAll(stderr.String(), file, "FILE")
			if code != c.code || stdout.String() != c.stdout || !strings.Contains(errText, c.stderr) || c.stderr == "" && errText != "" ||
				strings.Count(errText, "\n") > 1 {
				t.Errorf("exit code %d, output\n%s%s\nwant %d with\n%s%s", code, stdout.String(), errText, c.code, c.stdout, c.stderr)
			}
			if asked := strings.Join(b.asked, ","); asked != c.asked {
				t.Errorf("query to the agent = %q, want %q", asked, c.asked)
			}
			if c.flags == "-o json" && !json.Valid(stdout.Bytes()) {
				t.Errorf("output is not JSON: %s", stdout.String())
			}
		})
	}
}
