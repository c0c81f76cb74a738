package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"jettison/e2e/build"
)

// The bridges' namespace and service account.
const (
	bridgeNamespace = "jettison-system"
	bridgeAccount   = "jettison-bridge"
)

// installBridge applies the manifests of the agent and the bridge as an operator does, and waits
// until the policies are in effect. No controller runs, so the DaemonSets have no pods. The cluster
// has nodes n1 and n2.
func installBridge(t testing.TB, c *Cluster) {
	t.Helper()
	c.requireOwnCluster()
	root, err := build.ModuleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n1", "n2"} {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		if _, err := c.Client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // a controller would make it
	if _, err := c.Client.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Kubectl(t.Context(), "", "apply", "-k", filepath.Join(root, "deploy/overlays/bridge")); err != nil {
		t.Fatalf("apply the manifests of agent and bridge: %v\n%s", err, out)
	}
	anybody := client(t, c.Bearer(c.Token(bridgeNamespace, bridgeAccount, nil)))
	for what, try := range map[string]func() error{
		"pods":   func() error { return patchPod(t.Context(), anybody, "nobody", `{}`) },
		"nodes":  func() error { return patchNode(t.Context(), anybody, "n1", `{"status": {"phase": "Pending"}}`) },
		"leases": func() error { return createLease(t.Context(), anybody, bridgeNamespace, "n2", nil) },
		"events": func() error { return createEvent(t.Context(), anybody, nil) },
	} {
		if what == "pods" { // a policy needs an existing object
			runningPod(t, c, "nobody", "n1", nil)
			try = func() error { return patchPod(t.Context(), anybody, "nobody", `{"status": {"message": "x"}}`) }
		}
		c.Eventually(startDeadline, "the policy of "+what+" holds", func(context.Context) error {
			if err := try(); !denied(err, "names no node") {
				return fmt.Errorf("a token without a node: %v", err)
			}
			return nil
		})
	}
}

// denied reports whether a policy rejected a request, for a reason.
func denied(err error, why string) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") && strings.Contains(err.Error(), why)
}

// runningPod makes a running pod on a node.
func runningPod(t testing.TB, c *Cluster, name, node string, annotations map[string]string) *v1.Pod {
	t.Helper()
	pod, err := makeRunningPod(t.Context(), c, name, node, annotations)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func makeRunningPod(ctx context.Context, c *Cluster, name, node string, annotations map[string]string) (*v1.Pod, error) {
	no := false
	pod, err := c.Client.CoreV1().Pods("default").Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}, Annotations: annotations},
		Spec: v1.PodSpec{NodeName: node, AutomountServiceAccountToken: &no, Containers: []v1.Container{{
			Name: "c", Image: "i", Env: []v1.EnvVar{{Name: "A", Value: "b"}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	started := metav1.NewTime(pod.CreationTimestamp.Add(-time.Minute))
	pod.Status.Phase, pod.Status.PodIP, pod.Status.HostIP, pod.Status.StartTime = v1.PodRunning, "10.0.0.7", "10.0.0.1", &started
	pod.Status.PodIPs = []v1.PodIP{{IP: "10.0.0.7"}}
	pod.Status.Conditions = []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: v1.ConditionTrue},
		{Type: v1.ContainersReady, Status: v1.ConditionTrue},
	}
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Ready: true, State: v1.ContainerState{
		Running: &v1.ContainerStateRunning{StartedAt: started},
	}}}
	return c.Client.CoreV1().Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{})
}

func patchPod(ctx context.Context, c kubernetes.Interface, name, body string) error {
	_, err := c.CoreV1().Pods("default").Patch(ctx, name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status")
	return err
}

func patchNode(ctx context.Context, c kubernetes.Interface, name, body string) error {
	_, err := c.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status")
	return err
}

func createLease(ctx context.Context, c kubernetes.Interface, namespace, name string, annotations map[string]string) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	_, err := c.CoordinationV1().Leases(namespace).Create(ctx, lease, metav1.CreateOptions{})
	return err
}

// createEvent creates the event of a bridge of node n1 about its node, with a change.
func createEvent(ctx context.Context, c kubernetes.Interface, change func(*v1.Event)) error {
	e := &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("e.%d", time.Now().UnixNano())}, Reason: "Evicted", Type: "Warning",
		InvolvedObject: v1.ObjectReference{Kind: "Node", Name: "n1"}, Source: v1.EventSource{Component: "jettison", Host: "n1"},
		ReportingController: "jettison", ReportingInstance: "n1",
	}
	if change != nil {
		change(e)
	}
	_, err := c.CoreV1().Events("default").Create(ctx, e, metav1.CreateOptions{})
	return err
}

// evict returns the patch with which a bridge sets a pod to Failed, with a case's own fields merged
// over it.
func evict(t *testing.T, over map[string]any) string {
	t.Helper()
	p := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"jettison/evicted": "r1"}},
		"status": map[string]any{"phase": "Failed", "reason": "Evicted", "message": "m", "conditions": []any{
			map[string]any{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByJettison"},
			map[string]any{"type": "Ready", "status": "False", "reason": "PodFailed"},
		}},
	}
	for part, fields := range over {
		for k, v := range fields.(map[string]any) {
			p[part].(map[string]any)[k] = v
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The policy accepts a bridge's writes to the status of a pod of its node, and rejects all other
// writes, with its own messages.
func TestWhatABridgeMayWriteToPods(t *testing.T) {
	c := Start(t, Options{})
	installBridge(t, c)
	own := client(t, c.Bearer(c.NodeToken(bridgeNamespace, bridgeAccount, "n1")))
	type fields = map[string]any
	condition := func(kind, status, reason string) string {
		return fmt.Sprintf(`{"status": {"conditions": [{"type": %q, "status": %q, "reason": %q}]}}`, kind, status, reason)
	}
	for i, p := range []struct {
		what, patch, refused string
		prepare              func(*v1.Pod)
	}{
		{"an eviction", evict(t, nil), "", nil},
		{"a preemption", evict(t, fields{"status": fields{"reason": "Preempting"}}), "", nil},
		{"a victim that is chosen", condition("DisruptionTarget", "True", "EvictionByJettison"), "", nil},
		{"one that lives", condition("DisruptionTarget", "False", "EvictionByJettison"), "", nil},
		{"one that was not ready before", evict(t, nil), "", func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: "m"}}
		}},
		{"its kubelet's word", `{"metadata": {"annotations": {"jettison/evicted": "r1#1"}}, "status": {}}`, "", func(p *v1.Pod) {
			p.Annotations = map[string]string{"jettison/evicted": "r1"}
			p.Status.Phase = v1.PodFailed
		}},
		{"a reason that was lost", evict(t, nil), "", func(p *v1.Pod) {
			p.Annotations = map[string]string{"jettison/evicted": "r1"}
			p.Status.Phase = v1.PodFailed
		}},
		{"without the record", `{"status": {"phase": "Failed", "reason": "Evicted"}}`, "must set jettison/evicted", nil},
		{"labels", evict(t, fields{"metadata": fields{"labels": fields{"app": "another"}}}), "no labels", nil},
		{"a new label", evict(t, fields{"metadata": fields{"labels": fields{"b": "c"}}}), "no labels", nil},
		{"another annotation", evict(t, fields{"metadata": fields{"annotations": fields{"jettison/evicted": "r", "a": "b"}}}), "no annotation but", nil},
		{"an annotation less", evict(t, fields{"metadata": fields{"annotations": fields{"jettison/evicted": "r", "keep": nil}}}), "no annotation but",
			func(p *v1.Pod) { p.Annotations = map[string]string{"keep": "it"} }},
		{"finalizers", evict(t, fields{"metadata": fields{"finalizers": []string{"a.b/c"}}}), "no labels, finalizers", nil},
		{"the beginning of a name", evict(t, fields{"metadata": fields{"generateName": "_"}}), "nothing of an object's metadata", nil},
		{"when it began", evict(t, fields{"status": fields{"startTime": "2026-02-01T00:00:00Z"}}), "nothing of a pod's status but", nil},
		{"containers", evict(t, fields{"status": fields{"containerStatuses": []any{fields{"name": "c", "ready": false}}}}), "nothing of a pod's status but", nil},
		{"success", evict(t, fields{"status": fields{"phase": "Succeeded"}}), "nothing but Failed", nil},
		{"another reason", evict(t, fields{"status": fields{"reason": "Because"}}), "no reason but", nil},
		{"a reason of one that runs", `{"status": {"reason": "Evicted", "message": "m"}}`, "no reason but", nil},
		{"a condition of the scheduler's", condition("PodScheduled", "False", "x"), "no conditions but", nil},
		{"one that runs is not ready", condition("Ready", "False", "x"), "no conditions but", nil},
		{"another's disruption", condition("DisruptionTarget", "True", "PreemptionByScheduler"), "no conditions but", nil},
		{"a long status", condition("DisruptionTarget", strings.Repeat("T", 300), "EvictionByJettison"), "no status but", nil},
		{"a condition less", `{"status": {"conditions": [{"$patch": "delete", "type": "PodScheduled"}]}}`, "no conditions but", nil},
		{"a long message", evict(t, fields{"status": fields{"message": strings.Repeat("m", 5000)}}), "no long texts", nil},
		{"a long record", evict(t, fields{"metadata": fields{"annotations": fields{"jettison/evicted": strings.Repeat("r", 129)}}}), "no long texts", nil},
		{"a victim that had such an annotation", condition("DisruptionTarget", "True", "EvictionByJettison"), "", func(p *v1.Pod) {
			p.Annotations = map[string]string{"jettison/evicted": strings.Repeat("r", 200)}
		}},
		{"one that has succeeded", evict(t, nil), "nothing but Failed", func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }},
		{"one that has failed", evict(t, nil), "may not change an ended pod", func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }},
		{"a condition twice", evict(t, fields{"status": fields{"conditions": []any{
			fields{"$patch": "replace"}, fields{"type": "PodScheduled", "status": "True"}, fields{"type": "Ready", "status": "False"},
			fields{"type": "ContainersReady", "status": "True"}, fields{"type": "Ready", "status": "False"},
		}}}), "no condition twice", nil},
		{"a static pod's mirror", evict(t, nil), "a static pod", func(p *v1.Pod) { p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"} }},
	} {
		name := fmt.Sprint("p", i)
		var was v1.Pod
		if p.prepare != nil {
			p.prepare(&was)
		}
		pod := runningPod(t, c, name, "n1", was.Annotations)
		if was.Status.Phase != "" || was.Status.Conditions != nil {
			pod.Status.Phase = cmp.Or(was.Status.Phase, pod.Status.Phase)
			pod.Status.Conditions = append(pod.Status.Conditions[:1], was.Status.Conditions...)
			if _, err := c.Client.CoreV1().Pods("default").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := patchPod(t.Context(), own, name, p.patch); p.refused == "" && err != nil || p.refused != "" && !denied(err, p.refused) {
			t.Errorf("write of a bridge: %s: %v, want %q", p.what, err, p.refused)
		}
	}
	expectOtherPodsRejected(t, c, own)
	expectGrowthRejected(t, c, own)
}

// After a bridge has set a pod to Failed, all clients may add to its status. No client, with any
// rights, may set it to running or remove its reason.
func TestWhatHasFailedByABridgeStaysSo(t *testing.T) {
	c := Start(t, Options{})
	installBridge(t, c)
	ctx := t.Context()
	failed := func(name string) *v1.Pod {
		p := runningPod(t, c, name, "n1", map[string]string{"jettison/evicted": "r1"})
		p.Status.Phase, p.Status.Reason, p.Status.Message = v1.PodFailed, "Evicted", "m"
		p, err := c.Client.CoreV1().Pods("default").UpdateStatus(ctx, p, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	c.Eventually(startDeadline, "the policy holds", func(context.Context) error {
		name := fmt.Sprint("first-", time.Now().UnixNano())
		failed(name)
		if err := patchPod(ctx, c.Client, name, `{"status": {"phase": "Running"}}`); !denied(err, "does not run again") {
			return fmt.Errorf("write that sets the pod to running = %v, want a rejection", err)
		}
		return nil
	})
	deleted := func(p *v1.Pod) {
		if err := c.Client.CoreV1().Pods("default").Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	own := client(t, c.Bearer(c.NodeToken(bridgeNamespace, bridgeAccount, "n1")))
	given := func(p *v1.Pod) {
		if err := patchPod(ctx, own, p.Name, `{"metadata": {"annotations": {"jettison/evicted": "r1#1"}}}`); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range []struct {
		what, patch, refused string
		prepare              func(*v1.Pod)
	}{
		{"it runs", `{"status": {"phase": "Running", "reason": null, "message": null}}`, "does not run again", nil},
		{"no reason", `{"status": {"reason": null, "message": null}}`, "must keep a reason", nil},
		{"an empty reason", `{"status": {"reason": ""}}`, "must keep a reason", nil},
		{"its containers' ends", `{"status": {"containerStatuses": [{"name": "c", "ready": false, "state": {"running": null, "terminated": {"exitCode": 137}}}]}}`, "", nil},
		{"no reason of one that ended well", `{"status": {"reason": null, "containerStatuses": [{"name": "c", "ready": false, "state": {"running": null, ` +
			`"terminated": {"exitCode": 0}}}]}}`, "", nil},
		{"no reason of one that was killed", `{"status": {"reason": null, "containerStatuses": [{"name": "c", "ready": false, "state": {"running": null, ` +
			`"terminated": {"exitCode": 137}}}]}}`, "must keep a reason", nil},
		{"no reason of one whose kubelet is let have its word", `{"status": {"reason": null}}`, "", given},
		{"it ended well, of one whose kubelet is let have its word", `{"status": {"phase": "Succeeded", "reason": null, "containerStatuses": [` +
			`{"name": "c", "ready": false, "state": {"running": null, "terminated": {"exitCode": 0}}}]}}`, "", given},
		{"it runs, of one whose kubelet is let have its word", `{"status": {"phase": "Running"}}`, "does not run again", given},
		{"a reason of the kubelet's own", `{"status": {"reason": "DeadlineExceeded"}}`, "", nil},
		{"no reason of what is being deleted", `{"status": {"reason": null, "message": null}}`, "", deleted},
		{"it runs, of what is being deleted", `{"status": {"phase": "Running"}}`, "does not run again", deleted},
		{"it ended well", `{"status": {"phase": "Succeeded", "reason": null, "message": null}}`, "it stays Failed", nil},
		{"it ended well, of what is being deleted", `{"status": {"phase": "Succeeded", "reason": null, "message": null}}`, "", deleted},
		{"it runs, of a static pod's mirror", `{"status": {"phase": "Running", "reason": null, "message": null}}`, "", func(p *v1.Pod) {
			mirror := p.DeepCopy()
			mirror.ObjectMeta = metav1.ObjectMeta{Name: p.Name, Annotations: map[string]string{"jettison/evicted": "r1", v1.MirrorPodAnnotationKey: "m"}}
			mirror.Spec.ServiceAccountName, mirror.Spec.DeprecatedServiceAccount = "", ""
			unkeep := []byte(`{"metadata": {"finalizers": null}}`)
			if _, err := c.Client.CoreV1().Pods("default").Patch(ctx, p.Name, types.MergePatchType, unkeep, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := c.Client.CoreV1().Pods("default").Delete(ctx, p.Name, *metav1.NewDeleteOptions(0)); err != nil {
				t.Fatal(err)
			}
			made, err := c.Client.CoreV1().Pods("default").Create(ctx, mirror, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			made.Status = p.Status
			if _, err := c.Client.CoreV1().Pods("default").UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}},
		{"another record", `{"metadata": {"annotations": {"jettison/evicted": "mine"}}, "status": {}}`, "set or change the annotation", nil},
		{"no record", `{"metadata": {"annotations": {"jettison/evicted": null}}, "status": {}}`, "", nil},
	} {
		pod := failed(fmt.Sprint("q", i))
		keep := []byte(`{"metadata": {"finalizers": ["a.b/c"]}}`) // keeps deleted pods
		if _, err := c.Client.CoreV1().Pods("default").Patch(ctx, pod.Name, types.MergePatchType, keep, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if p.prepare != nil {
			p.prepare(pod)
		}
		if err := patchPod(ctx, c.Client, pod.Name, p.patch); p.refused == "" && err != nil || p.refused != "" && !denied(err, p.refused) {
			t.Errorf("write to a failed pod: %s: %v, want %q", p.what, err, p.refused)
		}
	}
	authored := func(name, body string) error {
		_, err := c.Client.CoreV1().Pods("default").Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	failed("authored")
	if err := authored("authored", `{"metadata": {"annotations": {"jettison/evicted": "mine"}}}`); !denied(err, "set or change the annotation") {
		t.Errorf("change of the record annotation = %v, want a rejection", err)
	}
	if err := authored("authored", `{"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}`); err != nil {
		t.Errorf("change the owner's own annotation: %v", err)
	}
	if err := authored("authored", `{"metadata": {"annotations": {"jettison/evicted": null}}}`); err != nil {
		t.Errorf("remove the record annotation: %v", err)
	}
	for _, value := range []string{"mine", ""} {
		if err := authored("authored", `{"metadata": {"annotations": {"jettison/evicted": "`+value+`"}}}`); !denied(err, "set or change the annotation") {
			t.Errorf("new record annotation %q = %v, want a rejection", value, err)
		}
	}
}

// expectGrowthRejected tries to enlarge a pod and a node with each write, by new names of field managers.
func expectGrowthRejected(t *testing.T, c *Cluster, own kubernetes.Interface) {
	t.Helper()
	runningPod(t, c, "applied", "n1", nil)
	ctx, force := t.Context(), true
	o := metav1.PatchOptions{FieldManager: "m1", Force: &force}
	body := []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "applied"}, "status": {"conditions": [
		{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByJettison"}]}}`)
	if _, err := own.CoreV1().Pods("default").Patch(ctx, "applied", types.ApplyPatchType, body, o, "status"); !denied(err, "server-side apply") {
		t.Errorf("apply a pod's status by a bridge = %v, want a rejection", err)
	}
	body = []byte(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"conditions": [
		{"type": "JettisonMemoryPressure", "status": "True", "reason": "r"}]}}`)
	if _, err := own.CoreV1().Nodes().Patch(ctx, "n1", types.ApplyPatchType, body, o, "status"); !denied(err, "server-side apply") {
		t.Errorf("apply a node's status by a bridge = %v, want a rejection", err)
	}
	body = []byte(`{"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "JettisonPIDPressure", "status": "True"},
		{"type": "JettisonPIDPressure", "status": "True"}]}}`)
	_, err := own.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		t.Errorf("duplicate condition of a node = %v, want a rejection", err)
	}
	if err := patchNode(ctx, own, "n1", `{"status": {"conditions": [{"type": "JettisonPIDPressure", "status": "True", "reason": "r"}]}}`); err != nil {
		t.Errorf("write a node's condition: %v", err)
	}
	body = []byte(`[{"op": "replace", "path": "/status/conditions/0", "value": {"type": "Ready", "status": "True"}}]`)
	_, err = own.CoreV1().Nodes().Patch(ctx, "n1", types.JSONPatchType, body, metav1.PatchOptions{}, "status")
	if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		t.Errorf("duplicate Ready in place of the bridge's condition = %v, want a rejection", err)
	}
}

// expectOtherPodsRejected tries pods of other nodes.
func expectOtherPodsRejected(t *testing.T, c *Cluster, own kubernetes.Interface) {
	t.Helper()
	runningPod(t, c, "elsewhere", "n2", nil)
	if err := patchPod(t.Context(), own, "elsewhere", evict(t, nil)); !denied(err, "of its own node") {
		t.Errorf("write to a pod of another node = %v, want a rejection", err)
	}
	runningPod(t, c, "nowhere", "", nil)
	if err := patchPod(t.Context(), own, "nowhere", evict(t, nil)); !denied(err, "of its own node") {
		t.Errorf("write to an unscheduled pod = %v, want a rejection", err)
	}
}

// The same for nodes, Leases and events, and for verbs that no role grants a bridge.
func TestWhatABridgeMayWriteElsewhere(t *testing.T) {
	c := Start(t, Options{})
	installBridge(t, c)
	own := client(t, c.Bearer(c.NodeToken(bridgeNamespace, bridgeAccount, "n1")))
	ctx := t.Context()
	condition := func(kind string) string {
		return fmt.Sprintf(`{"status": {"conditions": [{"type": %q, "status": "False", "reason": "r", "message": "m"}]}}`, kind)
	}
	load := func(namespace, name, body string) error {
		_, err := own.CoordinationV1().Leases(namespace).Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	event := func(change func(*v1.Event)) error { return createEvent(ctx, own, change) }
	pod := runningPod(t, c, "p", "n1", nil)
	none := map[string]any{}
	notes := []map[string]any{ // fields that are long, many, or deep
		{"f:metadata": map[string]any{"f:annotations": map[string]any{"f:" + strings.Repeat("a", 1<<20): none}}},
		{"f:metadata": map[string]any{"f:annotations": map[string]any{}}},
		{"f:metadata": map[string]any{"f:annotations": map[string]any{"f:a": map[string]any{"f:" + strings.Repeat("a", 1<<20): none}}}},
	}
	for i := range 1000 {
		notes[1]["f:metadata"].(map[string]any)["f:annotations"].(map[string]any)[fmt.Sprint("f:", i, strings.Repeat("a", 400))] = none
	}
	for _, p := range []struct {
		what    string
		err     error
		refused string
	}{
		{"a condition of its own", patchNode(ctx, own, "n1", condition("JettisonMemoryPressure")), ""},
		{"taken away again", patchNode(ctx, own, "n1", `{"status": {"conditions": [{"$patch": "delete", "type": "JettisonMemoryPressure"}]}}`), ""},
		{"one that nobody reads", patchNode(ctx, own, "n1", condition("JettisonOther")), "no conditions but"},
		{"a long one", patchNode(ctx, own, "n1", strings.Replace(condition("JettisonMemoryPressure"), `"m"`, `"`+strings.Repeat("m", 1025)+`"`, 1)), "no long texts"},
		{"a long status", patchNode(ctx, own, "n1", strings.Replace(condition("JettisonMemoryPressure"), `"False"`, `"`+strings.Repeat("T", 300)+`"`, 1)),
			"no status but"},
		{"the kubelet's", patchNode(ctx, own, "n1", condition("MemoryPressure")), "no conditions but"},
		{"readiness", patchNode(ctx, own, "n1", condition("Ready")), "no conditions but"},
		{"readiness taken away", patchNode(ctx, own, "n1", `{"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}}`), "but conditions"},
		{"the beginning of a name", patchNode(ctx, own, "n1", `{"metadata": {"generateName": "_"}, "status": {}}`), "nothing of an object's metadata"},
		{"another node", patchNode(ctx, own, "n2", condition("JettisonMemoryPressure")), "of its own node"},
		{"a label", patchNode(ctx, own, "n1", `{"metadata": {"labels": {"a": "b"}}, "status": {}}`), "no labels"},
		{"an annotation", patchNode(ctx, own, "n1", `{"metadata": {"annotations": {"a": "b"}}, "status": {}}`), "no annotations"},
		{"capacity", patchNode(ctx, own, "n1", `{"status": {"capacity": {"cpu": "100"}}}`), "but conditions"},
		{"its load", createLease(ctx, own, bridgeNamespace, "n1", map[string]string{"jettison/load": "{}"}), ""},
		{"its load, applied", func() error {
			body := []byte(`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n1", "annotations": {"jettison/load": "{}"}}}`)
			o := metav1.PatchOptions{FieldManager: "m1"}
			_, err := own.CoordinationV1().Leases(bridgeNamespace).Patch(ctx, "n1", types.ApplyPatchType, body, o)
			return err
		}(), "server-side apply"},
		{"its load again", load(bridgeNamespace, "n1", `{"metadata": {"annotations": {"jettison/load": "{1}"}}}`), ""},
		{"another annotation", load(bridgeNamespace, "n1", `{"metadata": {"annotations": {"a": "b"}}}`), "but jettison/load"},
		{"a label of its load", load(bridgeNamespace, "n1", `{"metadata": {"labels": {"a": "b"}}}`), "no labels and finalizers"},
		{"a finalizer", load(bridgeNamespace, "n1", `{"metadata": {"finalizers": ["a.b/c"]}}`), "no labels and finalizers"},
		{"its node as owner", load(bridgeNamespace, "n1", ownerOf("Node", "n1")), ""},
		{"an owner of long words", load(bridgeNamespace, "n1", strings.Replace(ownerOf("Node", "n1"), `"u"`, `"`+strings.Repeat("u", 200)+`"`, 1)),
			"no owner but its node"},
		{"the beginning of a lease's name", load(bridgeNamespace, "n1", `{"metadata": {"generateName": "_"}}`), "generateName of its Lease"},
		{"another owner", load(bridgeNamespace, "n1", ownerOf("Node", "n2")), "no owner but its node"},
		{"a long load", load(bridgeNamespace, "n1", `{"metadata": {"annotations": {"jettison/load": "`+strings.Repeat("1", 5000)+`"}}}`), "no long texts"},
		{"long notes of a manager", load(bridgeNamespace, "n1", `{"metadata": {"managedFields": `+managed(t, "coordination.k8s.io/v1", notes[0])+`}}`),
			"may not enlarge managedFields"},
		{"many notes", load(bridgeNamespace, "n1", `{"metadata": {"managedFields": `+managed(t, "coordination.k8s.io/v1", notes[1])+`}}`),
			"may not enlarge managedFields"},
		{"deep notes", load(bridgeNamespace, "n1", `{"metadata": {"managedFields": `+managed(t, "coordination.k8s.io/v1", notes[2])+`}}`),
			"may not enlarge managedFields"},
		{"its load after an operator has applied a label", func() error {
			body := []byte(`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"c": "d"}}}`)
			o := metav1.PatchOptions{FieldManager: "operator"}
			if _, err := c.Client.CoordinationV1().Leases(bridgeNamespace).Patch(ctx, "n1", types.ApplyPatchType, body, o); err != nil {
				return err
			}
			return load(bridgeNamespace, "n1", `{"metadata": {"annotations": {"jettison/load": "{3}"}}}`)
		}(), ""},
		{"its load that an operator has annotated", func() error {
			body := []byte(`{"metadata": {"annotations": {"jettison/load": "{4}", "e": "f"}}}`)
			o := metav1.PatchOptions{FieldManager: "kubectl-annotate"}
			if _, err := c.Client.CoordinationV1().Leases(bridgeNamespace).Patch(ctx, "n1", types.MergePatchType, body, o); err != nil {
				return err
			}
			return load(bridgeNamespace, "n1", `{"metadata": {"annotations": {"jettison/load": "{5}"}}}`)
		}(), ""},
		{"its load after all that", load(bridgeNamespace, "n1", `{"metadata": {"annotations": {"jettison/load": "{2}"}}}`), ""},
		{"a holder", load(bridgeNamespace, "n1", `{"spec": {"holderIdentity": "me"}}`), "spec of its Lease"},
		{"another's load", createLease(ctx, own, bridgeNamespace, "n2", nil), "named after its node"},
		{"an event", event(nil), ""},
		{"of a pod", event(func(e *v1.Event) { e.InvolvedObject = v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p"} }), ""},
		{"of long notes of a manager", event(func(e *v1.Event) { e.ManagedFields = managedFields("v1", notes[0]) }), "may not enlarge managedFields"},
		{"of many notes", event(func(e *v1.Event) { e.ManagedFields = managedFields("v1", notes[1]) }), "may not enlarge managedFields"},
		{"of deep notes", event(func(e *v1.Event) { e.ManagedFields = managedFields("v1", notes[2]) }), "may not enlarge managedFields"},
		{"named by the API server", event(func(e *v1.Event) { e.Name, e.GenerateName = "", "e-" }), "valid object name"},
		{"named for a terminal", event(func(e *v1.Event) { e.Name = "a\x1b[2Jb" }), "valid object name"},
		{"as another node", event(func(e *v1.Event) { e.Source.Host = "n2" }), "node as its host"},
		{"as the kubelet", event(func(e *v1.Event) { e.Source.Component = "kubelet" }), "node as its host"},
		{"about another node", event(func(e *v1.Event) { e.InvolvedObject.Name = "n2" }), "about its own node"},
		{"that stays", event(func(e *v1.Event) { e.Finalizers = []string{"a.b/c"} }), "no labels, finalizers"},
		{"of an owner", event(func(e *v1.Event) {
			e.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}}
		}), "no labels, finalizers"},
		{"a long reason", event(func(e *v1.Event) { e.Reason = strings.Repeat("r", 129) }), "no long texts"},
		{"a long field", event(func(e *v1.Event) { e.InvolvedObject.FieldPath = strings.Repeat("r", 254) }), "no long texts"},
		{"a long annotation", event(func(e *v1.Event) { e.Annotations = map[string]string{"a": strings.Repeat("r", 2049)} }), "no long texts"},
		{"one with the kubelet's annotations", event(func(e *v1.Event) {
			e.Annotations = map[string]string{"offending_containers": "c", "offending_containers_usage": "1", "starved_resource": strings.Repeat("m", 2048)}
		}), ""},
		{"about something else", event(func(e *v1.Event) { e.InvolvedObject.Kind = "Secret" }), "about its own node"},
	} {
		if p.refused == "" && p.err != nil || p.refused != "" && !denied(p.err, p.refused) {
			t.Errorf("write of a bridge: %s: %v, want %q", p.what, p.err, p.refused)
		}
	}
	hasNoRole(t, c, own, pod.Name)
}

// ownerOf returns a patch that gives an object an owner.
func ownerOf(kind, name string) string {
	return fmt.Sprintf(`{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": %q, "name": %q, "uid": "u"}]}}`, kind, name)
}

// hasNoRole tries verbs that no role grants a bridge, and checks that it can read every pod.
func hasNoRole(t *testing.T, c *Cluster, own kubernetes.Interface, pod string) {
	t.Helper()
	ctx := t.Context()
	body, options := []byte(`{"metadata": {"labels": {"a": "b"}}}`), metav1.PatchOptions{}
	_, podErr := own.CoreV1().Pods("default").Patch(ctx, pod, types.MergePatchType, body, options)
	_, nodeErr := own.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, body, options)
	_, secretErr := own.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	_, nodesErr := own.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	for what, err := range map[string]error{
		"patch a pod": podErr, "patch a node": nodeErr, "read secrets": secretErr, "list nodes": nodesErr,
		"delete a pod":            own.CoreV1().Pods("default").Delete(ctx, pod, metav1.DeleteOptions{}),
		"delete a lease":          own.CoordinationV1().Leases(bridgeNamespace).Delete(ctx, "n1", metav1.DeleteOptions{}),
		"write a lease elsewhere": createLease(ctx, own, "kube-system", "n1", nil),
	} {
		if !apierrors.IsForbidden(err) || denied(err, "") {
			t.Errorf("request: %s: %v, want it forbidden", what, err)
		}
	}
	if pods, err := own.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); err != nil || len(pods.Items) == 0 {
		t.Errorf("read of all pods, which docs/operate/bridge.md documents: %v", err)
	}
}

// managedFields returns a client's claim of field ownership.
func managedFields(version string, fields map[string]any) []metav1.ManagedFieldsEntry {
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	at := metav1.Now()
	return []metav1.ManagedFieldsEntry{{
		Manager: "x", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: version, Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw)),
	}}
}

// managed returns the same as JSON.
func managed(t *testing.T, version string, fields map[string]any) string {
	t.Helper()
	text, err := json.Marshal(managedFields(version, fields))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
