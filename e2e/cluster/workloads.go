package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/e2e/vm"
)

// workloadDeadline is ten times the time that two pods need under emulation.
const workloadDeadline = 3 * time.Minute

// Deploy makes a Deployment in namespace default: replicas of a pod with the workload's image.
// behaviour is the workload's command line. Its pods have their own network, a service account's
// token, and the label app=NAME.
func (c *Cluster) Deploy(name string, replicas int32, behaviour string) {
	c.t.Helper()
	labels, grace := map[string]string{"app": name}, int64(2)
	pod := v1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{container(behaviour)}}
	_, err := c.Client.AppsV1().Deployments("default").Create(c.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// container returns a container with a behaviour. It requests some CPU time: a BestEffort pod gets
// so little next to kubelet and runtime under emulation that a leak takes minutes.
func container(behaviour string) v1.Container {
	return v1.Container{
		Name: "main", Image: vm.ImageWorkload, ImagePullPolicy: v1.PullIfNotPresent, Args: strings.Fields(behaviour),
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}},
	}
}

// Available waits until a Deployment has so many available replicas.
func (c *Cluster) Available(name string, replicas int32) {
	c.t.Helper()
	c.Eventually(workloadDeadline, fmt.Sprintf("Deployment %s has %d available replicas", name, replicas), func(ctx context.Context) error {
		d, err := c.Client.AppsV1().Deployments("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != replicas {
			err = fmt.Errorf("%d replicas available; events: %v", d.Status.AvailableReplicas, c.events(ctx))
		}
		return err
	})
}

// Pods returns the pods of a namespace with the labels of a selector, "app=web".
func (c *Cluster) Pods(ctx context.Context, namespace, selector string) ([]v1.Pod, error) {
	list, err := c.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// events returns the last events of namespace default, for failure messages.
func (c *Cluster) events(ctx context.Context) (out []string) {
	list, err := c.Client.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return []string{err.Error()}
	}
	for _, e := range list.Items[max(0, len(list.Items)-5):] {
		out = append(out, fmt.Sprintf("%s: %s: %s", e.InvolvedObject.Name, e.Reason, e.Message))
	}
	return out
}

// DaemonSetReady waits until a DaemonSet has a ready pod on each of its nodes, and at least on one.
func (c *Cluster) DaemonSetReady(namespace, name string) {
	c.t.Helper()
	c.Eventually(workloadDeadline, fmt.Sprintf("DaemonSet %s/%s is ready", namespace, name), func(ctx context.Context) error {
		d, err := c.Client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (d.Status.NumberReady == 0 || d.Status.NumberReady < d.Status.DesiredNumberScheduled) {
			err = fmt.Errorf("DaemonSet's status is %+v", d.Status)
		}
		return err
	})
}

// Logs returns the log of a pod's first container, through the API server and the kubelet.
func (c *Cluster) Logs(ctx context.Context, pod v1.Pod) (string, error) {
	text, err := c.Client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &v1.PodLogOptions{}).DoRaw(ctx)
	return string(text), err
}
