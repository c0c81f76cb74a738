package planner

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/deschedule"

	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
)

// run makes a plan from the files in testdata, as the command does.
func run(t *testing.T, edit func(*Offline)) (stdout, stderr string, err error) {
	t.Helper()
	o := &Offline{
		Policy: "testdata/policy.yaml", From: []string{"testdata/objects.yaml"}, Now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC),
		Format: output.AsJSON,
	}
	edit(o)
	var out, errs bytes.Buffer
	err = o.Run(terminal.Fixed(&out, 120), &errs)
	return out.String(), errs.String(), err
}

func TestJSON(t *testing.T) {
	text, stderr, err := run(t, func(*Offline) {})
	if err != nil {
		t.Fatal(err)
	}
	var d map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	var evictions []map[string]any
	if err := json.Unmarshal(d["evictions"], &evictions); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"namespace": "shop", "name": "web-7", "uid": "u-7", "node": "n1", "profile": "default", "strategy": "LowNodeUtilization",
		"reason": "n1 is over targetThresholds: cpu 90.0% of 50%, memory 87.5% of 50%, pods 80.0% of 50%",
	}
	if len(evictions) != 4 || len(evictions[0]) != len(want) {
		t.Fatalf("plan = %s, want four evictions with %d fields", text, len(want))
	}
	for key, value := range want {
		if evictions[0][key] != value {
			t.Errorf("%s of the first eviction = %v, want %v", key, evictions[0][key], value)
		}
	}
	for key, value := range map[string]string{
		"after":   `{"n1":{"cpu":40,"memory":37.5,"pods":40},"n2":{"cpu":50,"memory":50,"pods":40}}`,
		"skipped": `[{"namespace":"kube-system","name":"agent","reason":"owned by a DaemonSet (DaemonSetPods)"}]`,
		"stopped": `[]`,
	} {
		if string(d[key]) != value {
			t.Errorf("%s of the plan = %s, want %s", key, d[key], value)
		}
	}
	if want := "ignored objects of unused kinds: 1 ReplicaSet\n"; !strings.HasSuffix(stderr, want) {
		t.Errorf("stderr = %q, want suffix %q", stderr, want)
	}
}

// The same objects give the same plan in every input format.
func TestFormatsOfObjects(t *testing.T) {
	want, _, err := run(t, func(*Offline) {})
	if err != nil {
		t.Fatal(err)
	}
	all := newObjects()
	text, err := os.ReadFile("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := all.read(text, "objects"); err != nil {
		t.Fatal(err)
	}
	var items []any
	for _, n := range all.Nodes {
		n.Kind, n.APIVersion = "Node", "v1"
		items = append(items, n)
	}
	pods := []any{}
	for _, p := range all.Pods {
		pods = append(pods, p)
	}
	list, _ := json.Marshal(map[string]any{"kind": "List", "apiVersion": "v1", "items": append(items, map[string]any{"kind": "PodList", "items": pods})})
	file := filepath.Join(t.TempDir(), "objects.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _, err := run(t, func(o *Offline) { o.From = []string{file} }); err != nil || got != want {
		t.Errorf("plan = %s, error %v, want %s", got, err, want)
	}
	if got, _, err := run(t, func(o *Offline) { o.From, o.Stdin = []string{"-"}, bytes.NewReader(text) }); err != nil || got != want {
		t.Errorf("plan = %s, error %v, want %s", got, err, want)
	}
}

func TestText(t *testing.T) {
	text, _, err := run(t, func(o *Offline) { o.Format = output.AsTable })
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"4 pods would be evicted, in this order:", "web-7", "LowNodeUtilization", "Pods skipped: 1.", "owned by a DaemonSet",
		"██████████████████░░  90%  ████████░░░░░░░░░░░░  40%",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("output does not have %q:\n%s", want, text)
		}
	}
}

func TestDiff(t *testing.T) {
	text, _, err := run(t, func(o *Offline) { o.Diff = "testdata/other.yaml" })
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ Only, Other, Both []struct{ Name string } }
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Only) != 4 || len(d.Both) != 0 || len(d.Other) != 2 {
		t.Errorf("difference = %s, want 4 only, 2 other, 0 both", text)
	}
	if text, _, err = run(t, func(o *Offline) { o.Diff, o.Format = "testdata/other.yaml", output.AsTable }); err != nil ||
		!strings.Contains(text, "4 pods would be evicted only by testdata/policy.yaml, in this order:") ||
		!strings.Contains(text, "2 pods would be evicted only by testdata/other.yaml, in this order:") {
		t.Errorf("Run() = %v, output %s, want both lists of evictions", err, text)
	}
}

func TestObjectErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":              "file is empty",
		"\xff\xfe{\x00": "file is UTF-16",
		"{}":            "document 1: kind is missing",
		"{":             "document 1: unexpected EOF",
		"kind: Pod\n":   "document 1: Pod : metadata.name is missing",
		"a: [\n":        "document 1:",
		"[3]":           "document 1: item 1: not a Kubernetes object: want a mapping",
		`{"kind":"List","items":[{"kind":"Node","metadata":{"name":"a"}},{"kind":"Node","metadata":{"name":"a","uid":"u"}}]}`: "item 2: Node a: duplicate object: the copies differ",
		`{"kind":"Pod","metadata":{"name":"a"}}`:                                         "no Node found",
		`{"kind":"Pod","metadata":{"name":"a","namespace":"b"},"spec":{"priority":"x"}}`: "Pod b/a: json: cannot unmarshal string",
		`[[[[[[]]]]]]`: "lists are nested too deeply",
	} {
		_, _, err := run(t, func(o *Offline) { o.From, o.Stdin = []string{"-"}, strings.NewReader(text) })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run() with objects %q = %v, want %s", text, err, want)
		}
	}
}

// Errors and notices about missing objects name the files and folders that were read.
func TestMissingObjectsNameTheirSource(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "nodes.json")
	_, _, err := run(t, func(o *Offline) { o.From = []string{folder} })
	if want := "objects " + folder + ": no Node found: want the output of"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Run() with an empty folder = %v, want %s", err, want)
	}
	if err := os.WriteFile(file, []byte(`{"kind":"Pod","metadata":{"name":"a"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = run(t, func(o *Offline) {
		o.From, o.Stdin = []string{file, "-"}, strings.NewReader(`{"kind":"Pod","metadata":{"name":"b"}}`)
	})
	if want := "objects " + file + ", stdin: no Node found"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Run() with a file and standard input = %v, want %s", err, want)
	}
	if err := os.WriteFile(file, []byte(`{"kind":"Node","metadata":{"name":"a"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := run(t, func(o *Offline) { o.From = []string{folder} })
	if want := "objects " + folder + ": no Pod found"; err != nil || !strings.Contains(stderr, want) {
		t.Errorf("Run() with a node = %v, stderr %q, want %s", err, stderr, want)
	}
}

func TestPriorityClasses(t *testing.T) {
	all := newObjects()
	text := `{"kind":"Node","metadata":{"name":"n"}}{"kind":"PriorityClass","metadata":{"name":"mine"},"value":7}
{"kind":"Pod","metadata":{"name":"a"},"spec":{"priorityClassName":"mine"}}
{"kind":"Pod","metadata":{"name":"b"},"spec":{"priorityClassName":"system-node-critical"}}{"kind":"Pod","metadata":{"name":"c"}}`
	if err := all.read([]byte(text), "t"); err != nil {
		t.Fatal(err)
	}
	if err := all.complete(); err != nil {
		t.Fatal(err)
	}
	if *all.Pods[0].Spec.Priority != 7 || *all.Pods[1].Spec.Priority != 2000001000 || all.Pods[2].Spec.Priority != nil ||
		all.Pods[2].Namespace != "default" {
		t.Errorf("pods = %+v, want priorities 7, 2000001000 and none in namespace default", all.Pods)
	}
}

func FuzzObjects(f *testing.F) {
	f.Add(`{"kind":"List","items":[{"kind":"Pod","metadata":{"name":"a"}}]}`)
	f.Add("kind: Node\nmetadata: {name: a}\n---\nkind: PodDisruptionBudget\nmetadata: {name: b}\n")
	f.Fuzz(func(_ *testing.T, text string) {
		all := newObjects()
		if all.read([]byte(text), "f") == nil {
			_ = all.complete()
		}
	})
}

// Agents report load in annotations of Leases in jettison-system; other namespaces are ignored.
func TestAgentLoad(t *testing.T) {
	const load = `{"time":"2026-11-23T11:59:00Z","workingSetPercent":91.5,"headroomPercent":-3,"pressurePercent":{"ioFull":12.5,"cpuSome":140}}`
	lease := `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"n1","namespace":"NS","annotations":{"jettison/load":` +
		strconv.Quote(load) + `}}}`
	all := newObjects()
	if err := all.read([]byte(strings.Replace(lease, "NS", "jettison-system", 1)+strings.Replace(lease, "NS", "kube-node-lease", 1)), "t"); err != nil {
		t.Fatal(err)
	}
	want := map[v1.ResourceName]float64{deschedule.AgentWorkingSet: 91.5, deschedule.AgentHeadroomUsed: 100, deschedule.AgentIOFull: 12.5}
	if got := all.Agents["n1"]; len(all.Agents) != 1 || !maps.Equal(got.Percent, want) || got.At.Minute() != 59 {
		t.Errorf("agent load = %+v, want %v for n1", all.Agents, want)
	}
	for text, want := range map[string]string{"{}": "time is missing", "x": "invalid character"} {
		if _, err := ParseAgentLoad(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseAgentLoad(%s) = %v, want %s", text, err, want)
		}
	}
}

// stderrOf returns the notices of a plan with the given objects.
func stderrOf(t *testing.T, text string) string {
	t.Helper()
	_, stderr, err := run(t, func(o *Offline) { o.From, o.Stdin = []string{"-"}, strings.NewReader(text) })
	if err != nil {
		t.Error(err)
	}
	return stderr
}

// Other API groups have kinds with the same names. Items of typed lists have no kind.
func TestKindsOfOtherGroups(t *testing.T) {
	for text, want := range map[string][3]int{ // nodes, pods, figures of nodes
		`{"kind":"Node","apiVersion":"longhorn.io/v1beta2","metadata":{"name":"a","namespace":"longhorn-system"}}
{"kind":"Node","apiVersion":"v1","metadata":{"name":"a"},"status":{"allocatable":{"cpu":"4"}}}`: {1, 0, 0},
		`{"kind":"NodeList","apiVersion":"longhorn.io/v1beta2","items":[{"metadata":{"name":"b"}}]}{"kind":"Node","metadata":{"name":"a"}}`: {1, 0, 0},
		`{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1beta1","items":[{"metadata":{"name":"a"},"usage":{"cpu":"1"}}]}
{"kind":"Node","metadata":{"name":"a"}}`: {1, 0, 1},
		`{"kind":"Ingress","apiVersion":"extensions/v1beta1","metadata":{"name":"i"}}{"kind":"Ingress","apiVersion":"networking.k8s.io/v1",
"metadata":{"name":"i"}}{"kind":"Node","metadata":{"name":"a"}}`: {1, 0, 0},
	} {
		all := newObjects()
		if err := all.read([]byte(text), "t"); err != nil {
			t.Error(err)
		}
		if got := [3]int{len(all.Nodes), len(all.Pods), len(all.NodeUsage)}; got != want {
			t.Errorf("objects %s: nodes, pods, node metrics = %v, want %v", text, got, want)
		}
	}
}

// A namespaced object without namespace gets the default one, as in kubectl.
func TestObjectsWithoutNamespace(t *testing.T) {
	all := newObjects()
	if err := all.read([]byte(`{"kind":"Node","metadata":{"name":"n"}}{"kind":"Pod","metadata":{"name":"p"}}
{"kind":"PodDisruptionBudget","metadata":{"name":"b"}}{"kind":"PersistentVolumeClaim","metadata":{"name":"c"}}
{"kind":"PodMetrics","metadata":{"name":"p"}}`), "t"); err != nil {
		t.Fatal(err)
	}
	if all.Nodes[0].Namespace != "" || all.Pods[0].Namespace != "default" || all.Budgets[0].Namespace != "default" ||
		all.Claims[0].Namespace != "default" || all.PodUsage["default/p"] == nil {
		t.Errorf("objects = %+v, want namespace default except for the node", all)
	}
	if err := all.read([]byte(`{"kind":"Pod","metadata":{"name":"p","namespace":"default","uid":"u"}}`), "t"); err == nil {
		t.Error("read() accepts a second pod of the same name, want an error")
	}
}

// Names with line breaks do not add lines.
func TestNotesAreOneLine(t *testing.T) {
	if text := stderrOf(t, `{"kind":"Node","metadata":{"name":"n"}}{"kind":"Pod","metadata":{"name":"p"}}{"kind":"K\nforged","metadata":{"name":"k"}}`); strings.Count(text, "\n") != 1 {
		t.Errorf("stderr = %q, want one line", text)
	}
}

// A notice explains a plan without evictions if the input is likely wrong.
func TestNoticesOfPlans(t *testing.T) {
	if text := stderrOf(t, `{"kind":"Node","metadata":{"name":"n"}}`); !strings.Contains(text, "no Pod found") {
		t.Errorf("stderr = %q, want a notice about missing pods", text)
	}
	if text := stderrOf(t, `{"kind":"Node","metadata":{"name":"n"}}{"kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"N"}}`); !strings.Contains(text,
		"ignored 1 pod on nodes that are not among the objects, for example default/p on N\n") {
		t.Errorf("stderr = %q, want a notice about the unknown node", text)
	}
	file := filepath.Join(t.TempDir(), "idle.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nprofiles:\n- name: p\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, text, err := run(t, func(o *Offline) { o.Policy = file }); err != nil || !strings.Contains(text, "idle.yaml enables no strategy: nothing is evicted") {
		t.Errorf("Run() = %v, stderr %q, want a notice about the idle policy", err, text)
	}
}
