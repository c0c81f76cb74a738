package cleanup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"jettison/api"
)

// cluster holds nodes and Leases, and records requests.
type cluster struct {
	nodes  []v1.Node
	leases []coordinationv1.Lease
	did    []string
	list   error // returned by EachNode
}

func (c *cluster) EachNode(_ context.Context, each func(*v1.Node) error) error {
	for i := range c.nodes {
		if err := each(&c.nodes[i]); err != nil {
			return err
		}
	}
	return c.list
}

func (c *cluster) PatchNodeStatus(_ context.Context, name string, body []byte) (*v1.Node, error) {
	if name == "went" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
	}
	if name == "bad" {
		return nil, errors.New("patch nodes/status bad: no")
	}
	c.did = append(c.did, name+" "+string(body))
	return nil, nil
}

func (c *cluster) Leases(context.Context, string) ([]coordinationv1.Lease, error) {
	return c.leases, nil
}

func (c *cluster) DeleteLease(_ context.Context, namespace, name string) error {
	c.did = append(c.did, "delete "+namespace+"/"+name)
	return nil
}

func node(name string, conditions ...v1.NodeConditionType) v1.Node {
	out := v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, c := range conditions {
		out.Status.Conditions = append(out.Status.Conditions, v1.NodeCondition{Type: c})
	}
	return out
}

// Run removes only what bridges wrote, and continues after a node that fails.
func TestRun(t *testing.T) {
	lease := func(name string, annotations map[string]string) coordinationv1.Lease {
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "jettison-system", Name: name, Annotations: annotations}}
	}
	c := &cluster{
		nodes: []v1.Node{node("bad", "JettisonMemoryPressure"), node("a", "Ready", "JettisonMemoryPressure", "MemoryPressure"), node("b", "Ready")},
		leases: []coordinationv1.Lease{
			lease("a", map[string]string{api.LoadAnnotation: "{}"}), lease("jettison-cluster", nil),
		},
	}
	var out strings.Builder
	err := Run(t.Context(), c, "jettison-system", false, &out)
	if err == nil || err.Error() != "patch nodes/status bad: no" {
		t.Errorf("error %v, want only that of node bad", err)
	}
	const want = `a {"status":{"conditions":[{"$patch":"delete","type":"JettisonMemoryPressure"}]}}` + "\ndelete jettison-system/a"
	if got := strings.Join(c.did, "\n"); got != want {
		t.Errorf("requests\n%s\nwant\n%s", got, want)
	}
	if got := out.String(); got != "node a: removed conditions JettisonMemoryPressure\ncleaned 1 node, deleted 1 lease\n" {
		t.Errorf("output %q, want one node and one Lease", got)
	}
}

// A dry run names what it would remove, and writes nothing.
func TestDryRun(t *testing.T) {
	c := &cluster{
		nodes: []v1.Node{node("a", "Ready", "JettisonMemoryPressure", "JettisonDiskPressure"), node("b", "Ready")},
		leases: []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{
			Namespace: "jettison-system", Name: "a", Annotations: map[string]string{api.LoadAnnotation: "{}"},
		}}},
	}
	var out strings.Builder
	if err := Run(t.Context(), c, "jettison-system", true, &out); err != nil {
		t.Fatalf("dry run of cleanup returned an error: %v", err)
	}
	if len(c.did) > 0 {
		t.Errorf("requests of a dry run that write = %v, want none", c.did)
	}
	const want = "node a: would remove conditions JettisonMemoryPressure, JettisonDiskPressure\n" +
		"would clean 1 node, would delete 1 lease; nothing changed\n"
	if out.String() != want {
		t.Errorf("output of a dry run = %q, want %q", out.String(), want)
	}
}

// A list of nodes that fails does not keep Leases from being deleted, and a deleted node is no
// failure.
func TestRunContinuesAfterErrors(t *testing.T) {
	for _, list := range []error{nil, errors.New("list nodes: no role")} {
		c := &cluster{
			nodes: []v1.Node{node("went", "JettisonMemoryPressure")}, list: list,
			leases: []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{
				Namespace: "jettison-system", Name: "a", Annotations: map[string]string{api.LoadAnnotation: "{}"},
			}}},
		}
		var out strings.Builder
		err := Run(t.Context(), c, "jettison-system", false, &out)
		if fmt.Sprint(err) != fmt.Sprint(list) || strings.Join(c.did, "\n") != "delete jettison-system/a" ||
			out.String() != "cleaned 0 nodes, deleted 1 lease\n" {
			t.Errorf("list error %v: error %v, requests %v, output %s", list, err, c.did, out.String())
		}
	}
}
