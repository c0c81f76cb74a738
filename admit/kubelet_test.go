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

// testdata/kubelet.jsonl.gz was recorded from unmodified code of Kubernetes v1.36.3, one case a line: the pods as its SetObjectDefaults_Pod
// leaves them, asked of its sysctl allow-list and of its predicate handler with its handler of failures for critical pods. A kill was noted
// and succeeded.
func TestKubeletsAnswers(t *testing.T) {
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
		what, bad := c.compare()
		count[what]++
		if bad != "" {
			t.Errorf("case %d: %s", count["cases"], bad)
		}
		count["cases"]++
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	t.Log(count)
	for _, what := range []string{"admitted", "refused", "preempted", "nobody to preempt"} {
		if count[what] < 20 {
			t.Errorf("%s: %d cases", what, count[what])
		}
	}
}

// compare says what the kubelet answered, and how the answer here is another, but where it is meant to be.
func (c *kubeletCase) compare() (what, bad string) {
	n, p := stateOf(c.Node, c.Others), PodAttributes{Pod: c.Pod, Manifest: true}
	plan, r := Preempt(p, n)
	a := c.Answer
	switch {
	case (len(a.Killed) > 0 || a.Reason == ReasonUnexpected) && c.meant():
		if r.Admit {
			return "meant to be another", "admits"
		}
		return "meant to be another", ""
	case len(a.Killed) > 0:
		var there []Held
		for i := range n.Pods {
			if slices.Contains(a.Killed, n.Pods[i].Name) {
				there = append(there, n.Pods[i])
			}
		}
		if len(plan.Victims) < len(there) && len(without(plan.Needs, pointers(plan.Victims))) == 0 {
			return "preempted, one of them for nothing", ""
		}
		if r.Admit || !slices.Equal(alike(plan.Needs, plan.Victims), alike(plan.Needs, there)) {
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
			return "nobody to preempt", a.Message + ", here " + text(r)
		}
		return "nobody to preempt", ""
	}
	if r.Reason != a.Reason || r.Message != a.Message {
		return "refused", a.Reason + ": " + a.Message + ", here " + text(r)
	}
	return "refused", ""
}

// alike are pods by all that the choice looks at but their age: among equals the kubelet has no order, for taking one out of its list moves
// the last.
func alike(needs []Need, list []Held) (out []string) {
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

// meant: the victims are others here. A pod has resources of its own, or an overhead, so that the kubelet takes its room for one thing and
// its end for another; or it is static and may go there.
func (c *kubeletCase) meant() bool {
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
		c := kubeletCase{Pod: asks, Node: node, Others: others, Sysctls: []string{"net.core.*", "kernel.msgmax"}}
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

// drawFullCase is drawFull with objects.
func drawFullCase(t *rapid.T) kubeletCase {
	c := kubeletCase{Node: &v1.Node{}}
	c.Node.Name = "machine1"
	n, p := drawFull(t, func(o *v1.Pod) { c.Others = append(c.Others, o) })
	c.Pod, c.Node.Status.Allocatable = p.Pod, n.Allocatable
	// Among equals the kubelet takes the last of its list, which is here the youngest.
	slices.SortStableFunc(c.Others, func(a, b *v1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return c
}
