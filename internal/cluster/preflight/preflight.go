// Package preflight checks the cluster before jettison-cluster nodes runs in its mode: exactly one
// controller must taint nodes and evict their pods.
//
//	preflight.go    Check: earlier runs of this program, and pods of kube-controller-manager
//	controllers.go  the controllers that such a pod runs
package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"jettison/cluster/fence"
	"jettison/internal/base/commandline"
	"jettison/internal/cluster/config"
)

// fieldManager is this program's name in managedFields: its user agent up to the slash.
const fieldManager = "jettison-cluster"

// pageSize limits the nodes in one response.
const pageSize = 500

// managerSelectors select the pods of kube-controller-manager among others. kubeadm sets both labels.
var managerSelectors = []string{"component=" + managerName, "tier=control-plane"}

// controlPlaneLabel marks control plane nodes. A kubelet cannot set it on its node.
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// Check returns why this program must not run with the configuration in this cluster; nil: it may.
// If a read failed, it returns err instead, and the caller may try again.
func Check(ctx context.Context, client kubernetes.Interface, c *config.Cluster) (refusal,
	err error) {
	switch {
	case !c.ModeSet:
		return checkUnset(ctx, client, c)
	case c.Mode == config.Replace:
		return checkReplace(ctx, client, c)
	}
	return nil, nil
}

// checkUnset refuses to observe by default where this program has acted: replace was the default
// before, and a replica that only observes leaves such a cluster without a controller.
func checkUnset(ctx context.Context, client kubernetes.Interface, c *config.Cluster) (refusal,
	err error) {
	trace, err := earlierRun(ctx, client, c)
	if apierrors.IsForbidden(err) {
		trace, err = fmt.Sprintf("earlier runs cannot be ruled out (%v)", err), nil
	}
	if err != nil || trace == "" {
		return nil, err
	}
	return commandline.Usage(fmt.Errorf("mode is not set, and %s: this program may be the cluster's "+
		"only node controller. Set mode: replace (--mode=replace) to keep it so, mode: observe to write "+
		"nothing, or mode: fence", trace)), nil
}

// earlierRun returns a trace that this program left in the cluster when it acted; empty: none.
func earlierRun(ctx context.Context, client kubernetes.Interface, c *config.Cluster) (string,
	error) {
	namespace, name := c.LeaderElectResourceNamespace, c.LeaderElectResourceName
	_, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return fmt.Sprintf("its Lease %s/%s exists", namespace, name), nil
	}
	if !apierrors.IsNotFound(err) {
		return "", err
	}
	for o := (metav1.ListOptions{Limit: pageSize}); ; {
		nodes, err := client.CoreV1().Nodes().List(ctx, o)
		if err != nil {
			return "", err
		}
		for i := range nodes.Items {
			if n := &nodes.Items[i]; hasOwnTaints(n) {
				return fmt.Sprintf("node %s has its taints", n.Name), nil
			}
		}
		if o.Continue = nodes.Continue; o.Continue == "" {
			return "", nil
		}
	}
}

// hasOwnTaints reports whether this program wrote the node's taints last, or whether one of them is
// a taint that no other program writes.
func hasOwnTaints(n *v1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeOutOfService && t.Value == fence.Value
	}) || slices.ContainsFunc(n.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == fieldManager && f.FieldsV1 != nil &&
			strings.Contains(f.FieldsV1.GetRawString(), `"f:taints"`)
	})
}

// checkReplace refuses mode replace while kube-controller-manager runs the same controllers. Where
// no pod shows its flags, othersDisabled must say that it does not.
func checkReplace(ctx context.Context, client kubernetes.Interface, c *config.Cluster) (refusal,
	err error) {
	pods, err := managerPods(ctx, client)
	unseen := "no pod of kube-controller-manager was found on a control plane node"
	if apierrors.IsForbidden(err) {
		unseen, err = fmt.Sprintf("pods of kube-controller-manager cannot be read (%v)", err), nil
	}
	if err != nil {
		return nil, err
	}
	readable := len(pods) > 0
	for _, p := range pods {
		enabled, ok := replacedControllers(p)
		if len(enabled) > 0 {
			return fmt.Errorf("mode replace: pod %s/%s runs %s: start kube-controller-manager with "+
				"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller, or set mode: observe",
				p.Namespace, p.Name, strings.Join(enabled, " and ")), nil
		}
		if readable = readable && ok; !ok {
			unseen = fmt.Sprintf("the controllers of pod %s/%s cannot be read", p.Namespace, p.Name)
		}
	}
	if readable || c.OthersDisabled {
		return nil, nil
	}
	return commandline.Usage(errors.New("mode replace: " + unseen + ": set othersDisabled: true " +
		"(--others-disabled) after you have disabled its node-lifecycle-controller and " +
		"taint-eviction-controller")), nil
}

// managerPods returns the pods of kube-controller-manager on control plane nodes. The pods of other
// nodes prove nothing and are not read: a kubelet can create any number of mirror pods, with any
// content.
func managerPods(ctx context.Context, client kubernetes.Interface) (out []*v1.Pod, err error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: controlPlaneLabel})
	if err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		onNode := fields.OneTermEqualSelector("spec.nodeName", nodes.Items[i].Name).String()
		for _, selector := range managerSelectors {
			list, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx,
				metav1.ListOptions{LabelSelector: selector, FieldSelector: onNode})
			if err != nil {
				return nil, err
			}
			for j := range list.Items {
				if p := &list.Items[j]; isManager(p) {
					out = append(out, p)
				}
			}
		}
	}
	return out, nil
}
