package admit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// kubeletCase is a pod, a node and the pods on it, with the answer of the kubelet's own code.
type kubeletCase struct {
	Pod     *v1.Pod
	Node    *v1.Node
	Others  []*v1.Pod
	Sysctls []string
	Answer  *kubeletAnswer `json:",omitempty"`
}

type kubeletAnswer struct {
	Admit           bool
	Reason, Message string
	Killed          []string `json:",omitempty"`
}

var kubeletCases = flag.String("kubelet-cases", "", "write new cases for the kubelet to this file, without answers")

// testdata/kubelet.jsonl.gz was recorded from unmodified code of Kubernetes v1.37.2 by
// TestRecordKubeletAnswers of e2e/oracle, one case a line: the pods as its SetObjectDefaults_Pod
// leaves them, checked by its sysctl allow-list and its predicate handler with its handler of
// failures for critical pods. Kills were recorded and succeeded.
func TestKubeletAnswers(t *testing.T) {
	if *kubeletCases != "" {
		writeKubeletCases(t, *kubeletCases)
		return
	}
	packed, err := os.ReadFile("testdata/kubelet.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	text, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	lines := bufio.NewScanner(text)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var c kubeletCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		kind, difference := c.compare()
		count[kind]++
		if difference != "" {
			t.Errorf("decision in case %d differs: the kubelet %s", count["cases"], difference)
		}
		count["cases"]++
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	t.Log(count)
	for _, kind := range []string{"admitted", "rejected", "preempted", "no victims"} {
		if count[kind] < 20 {
			t.Errorf("recorded cases of kind %q = %d, want at least 20", kind, count[kind])
		}
	}
}

// compare returns the kind of the kubelet's answer, and the difference from the answer here, except
// for intended differences.
func (c *kubeletCase) compare() (kind, difference string) {
	n, p := stateOf(c.Node, c.Others), PodAttributes{Pod: c.Pod, Manifest: true}
	plan, r := Preempt(p, n)
	a := c.Answer
	switch {
	case (len(a.Killed) > 0 || a.Reason == ReasonUnexpected) && c.differsByDesign():
		if r.Admit {
			return "intended difference", "rejects, here admitted"
		}
		return "intended difference", ""
	case len(a.Killed) > 0:
		var killed []Held
		for i := range n.Pods {
			if slices.Contains(a.Killed, n.Pods[i].Name) {
				killed = append(killed, n.Pods[i])
			}
		}
		if len(plan.Victims) < len(killed) && len(remainingNeeds(plan.Needs, pointers(plan.Victims))) == 0 {
			return "preempted, one unnecessarily", ""
		}
		if r.Admit || !slices.Equal(choiceKeys(plan.Needs, plan.Victims), choiceKeys(plan.Needs, killed)) {
			return "preempted", "kills " + strings.Join(a.Killed, " ") + ", here " + plan.text() + text(r)
		}
		return "preempted", ""
	case a.Admit:
		if !r.Admit {
			return "admitted", "admits, here " + text(r)
		}
		return "admitted", ""
	case a.Reason == ReasonUnexpected:
		if r.Reason != a.Reason || r.Message != a.Message {
			return "no victims", "answers " + a.Message + ", here " + text(r)
		}
		return "no victims", ""
	}
	if r.Reason != a.Reason || r.Message != a.Message {
		return "rejected", "answers " + a.Reason + ": " + a.Message + ", here " + text(r)
	}
	return "rejected", ""
}

// choiceKeys returns the properties of pods that the choice reads, without their age: the kubelet
// has no order among equals, because removing one from its list moves the last.
func choiceKeys(needs []Need, list []Held) (out []string) {
	for i := range list {
		what := fmt.Sprint(list[i].QOS, list[i].Requests["memory"], list[i].Requests["cpu"])
		for _, n := range needs {
			what += fmt.Sprint(" ", list[i].frees(n.Resource))
		}
		out = append(out, what)
	}
	slices.Sort(out)
	return out
}

// differsByDesign reports whether the victims may differ. A pod has pod-level resources, or an
// overhead, which the kubelet counts differently when it runs and when it ends; or a pod is static
// and preemptible there.
func (c *kubeletCase) differsByDesign() bool {
	return slices.ContainsFunc(c.Others, func(p *v1.Pod) bool {
		return p.Spec.Resources != nil || p.Spec.Overhead != nil || static(p) && p.Spec.Priority != nil
	})
}

func writeKubeletCases(t *testing.T, path string) {
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	encoder := json.NewEncoder(file)
	rapid.Check(t, func(rt *rapid.T) {
		node, others, asks := drawCase(rt)
		c := kubeletCase{Pod: asks, Node: node, Others: others, Sysctls: drawnSysctls}
		if rapid.Bool().Draw(rt, "full") {
			c = drawFullCase(rt)
		}
		if err := encoder.Encode(c); err != nil {
			t.Fatal(err)
		}
	})
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// drawFullCase returns a case of drawFull with pod objects.
func drawFullCase(t *rapid.T) kubeletCase {
	c := kubeletCase{Node: &v1.Node{}}
	c.Node.Name = "machine1"
	n, p := drawFull(t, func(o *v1.Pod) { c.Others = append(c.Others, o) })
	c.Pod, c.Node.Status.Allocatable = p.Pod, n.Allocatable
	// Among equals the kubelet picks the last of its list, which is the youngest here.
	slices.SortStableFunc(c.Others, func(a, b *v1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return c
}
