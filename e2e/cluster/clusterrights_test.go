package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// write is a write with a token, and a part of the policy's message; empty: it is accepted.
type write struct {
	what, refused string
	do            func(context.Context, kubernetes.Interface) error
}

// A stolen token of jettison-cluster nodes permits only the program's own writes.
func TestWhatAStolenClusterTokenMayWrite(t *testing.T) {
	c := Start(t, Options{})
	ctx, in := t.Context(), account{"jettison-cluster", "jettison-cluster-nodes"}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{v1.LabelOSStable: "linux"}},
		Spec: v1.NodeSpec{PodCIDR: "10.0.0.0/24", Taints: []v1.Taint{{Key: "custom", Effect: v1.TaintEffectNoSchedule}}}}
	if _, err := c.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	body := `{"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}`
	if err := patchNode(ctx, c.Client, "n1", body); err != nil {
		t.Fatal(err)
	}
	user := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // a controller would make it
	if _, err := c.Client.CoreV1().ServiceAccounts("default").Create(ctx, user, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	runningPod(t, c, "web", "n1", nil)
	if out, err := c.Kubectl(ctx, "", "apply", "-k", filepath.Join(moduleRoot(t), "deploy/cluster")); err != nil {
		t.Fatalf("apply the manifests of jettison-cluster: %v\n%s", err, out)
	}
	c.awaitPermission(in, "patch", "", "nodes", "")
	token := c.Token(in.namespace, in.name, nil)
	stolen := client(t, c.Bearer(token))
	tried := c.Bearer(token) // changes nothing, so that it can be repeated
	tried.Wrap(func(next http.RoundTripper) http.RoundTripper { return dryRun{next} })
	probe := client(t, tried)
	patchSpec := func(body string) func(context.Context, kubernetes.Interface) error {
		return func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, []byte(body), metav1.PatchOptions{})
			return err
		}
	}
	status := func(body string) func(context.Context, kubernetes.Interface) error {
		return func(ctx context.Context, c kubernetes.Interface) error { return patchNode(ctx, c, "n1", body) }
	}
	pod := func(body string) func(context.Context, kubernetes.Interface) error {
		return func(ctx context.Context, c kubernetes.Interface) error { return patchPod(ctx, c, "web", body) }
	}
	event := func(change func(*v1.Event)) func(context.Context, kubernetes.Interface) error {
		return func(ctx context.Context, c kubernetes.Interface) error {
			return createEvent(ctx, c, func(e *v1.Event) {
				e.Source, e.ReportingController, e.ReportingInstance = v1.EventSource{Component: "node-controller"}, "node-controller", ""
				change(e)
			})
		}
	}
	lease := func(name, annotation string) func(context.Context, kubernetes.Interface) error {
		return func(ctx context.Context, c kubernetes.Interface) error {
			at := name
			if at == "" { // another one each time
				at = fmt.Sprint("mine-", time.Now().UnixNano())
			}
			return createLease(ctx, c, in.namespace, at, map[string]string{annotation: "true"})
		}
	}
	// Backups, deployment tools and people label objects, too.
	labelled := func(ctx context.Context, stolen kubernetes.Interface) error {
		body := []byte(`{"metadata": {"labels": {"backup": "1"}, "annotations": {"note": "1"}}}`)
		name := "jettison-cluster-nodes"
		if _, err := c.Client.CoordinationV1().Leases(in.namespace).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "backup"}); err != nil {
			return err
		}
		l, err := stolen.CoordinationV1().Leases(in.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		l.Spec.HolderIdentity = new("me")
		_, err = stolen.CoordinationV1().Leases(in.namespace).Update(ctx, l, metav1.UpdateOptions{})
		return err
	}
	custom := `{"key": "custom", "effect": "NoSchedule"}`
	dated := func(after time.Duration) func(context.Context, kubernetes.Interface) error {
		at := time.Now().Add(after).UTC().Format(time.RFC3339)
		return patchSpec(`{"spec": {"taints": [{"key": "out", "effect": "NoExecute", "timeAdded": "` + at + `"}, ` + custom + `]}}`)
	}
	// A client whose clock is ahead dates its taint in the future.
	redated := func(ctx context.Context, stolen kubernetes.Interface) error {
		if err := dated(time.Hour)(ctx, c.Client); err != nil {
			return err
		}
		if err := dated(2*time.Hour)(ctx, stolen); !denied(err, "taints of the node controller") {
			return fmt.Errorf("a later time for another's taint: error %w, want a rejection", err)
		}
		if err := dated(0)(ctx, stolen); err != nil {
			return err
		}
		return patchSpec(`{"spec": {"taints": [`+custom+`]}}`)(ctx, c.Client)
	}
	all := []write{
		{"IPs of a pod", "pod's status but conditions", pod(`{"status": {"podIP": "10.0.0.66", "podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.66"}]}}`)},
		{"labels of a pod", "pod's metadata", pod(`{"metadata": {"labels": {"app": "another"}}, "status": {}}`)},
		{"phase of a pod", "pod's status but conditions", pod(`{"status": {"phase": "Failed"}}`)},
		{"a pod that is ready", "no conditions but", pod(`{"status": {"conditions": [{"type": "ContainersReady", "status": "False"}]}}`)},
		{"addresses of a node", "node's status but conditions", status(`{"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.66"}]}}`)},
		{"a node that is ready", "only to Unknown", status(`{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Mine"}]}}`)},
		{"labels with a node's status", "metadata and spec", status(`{"metadata": {"labels": {"a": "b"}}}`)},
		{"labels of a node", "no labels but", patchSpec(`{"metadata": {"labels": {"a": "b"}}}`)},
		{"annotations of a node", "metadata but labels", patchSpec(`{"metadata": {"annotations": {"a": "b"}}}`)},
		{"a node is cordoned", "spec but taints", patchSpec(`{"spec": {"unschedulable": true}}`)},
		{"another's taint", "taints of the node controller", patchSpec(`{"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}, ` + custom + `]}}`)},
		{"another's taint is removed", "taints of the node controller", patchSpec(`{"spec": {"taints": []}}`)},
		{"an event of the kubelet", "as its source", event(func(e *v1.Event) { e.Source.Component = "kubelet" })},
		{"an event with a finalizer", "no labels, annotations, finalizers", event(func(e *v1.Event) { e.Finalizers = []string{"a.b/c"} })},
		{"another Lease", "only the Lease", lease("", "jettison/acting")},
		{"an annotation of its Lease", "no annotations but", lease("jettison-cluster-nodes", "mine")},
		// Accepted writes come last, because they change the objects.
		{"its event", "", event(func(*v1.Event) {})},
		{"its Lease", "", lease("jettison-cluster-nodes", "jettison/acting")},
		{"its Lease, labelled by another", "", labelled},
		{"its taint", "", patchSpec(`{"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}, ` + custom + `]}}`)},
		{"a time in the past for another's taint", "", redated},
		{"a derived label", "", patchSpec(`{"metadata": {"labels": {"beta.kubernetes.io/os": "linux"}}}`)},
		{"a silent node", "", status(`{"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}]}}`)},
		{"a pod that is not ready", "", pod(`{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}`)},
		{"a pod that is deleted", "", pod(`{"status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}]}}`)},
	}
	c.Eventually(startDeadline, "the policies hold", func(ctx context.Context) error {
		for _, w := range all {
			if w.refused == "" {
				continue
			}
			if err := w.do(ctx, probe); !denied(err, w.refused) {
				return fmt.Errorf("%s: error %v, want a rejection with %q", w.what, err, w.refused)
			}
		}
		return nil
	})
	for _, w := range all {
		if err := w.do(ctx, stolen); w.refused == "" && err != nil || w.refused != "" && !denied(err, w.refused) {
			t.Errorf("write with a stolen token: %s: %v, want %q", w.what, err, w.refused)
		}
	}
}

// dryRun changes no object.
type dryRun struct{ next http.RoundTripper }

func (d dryRun) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.RawQuery = url.Values{"dryRun": {"All"}}.Encode()
	return d.next.RoundTrip(r)
}
