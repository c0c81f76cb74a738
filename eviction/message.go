package eviction

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// Messages of evictions for a threshold (pkg/kubelet/eviction/helpers.go nodeLowMessageFmt,
// thresholdMetMessageFmt, containerMessageFmt and podMessageFmt). The last one is this project's
// own.
const (
	nodeLow          = "The node was low on resource: %v. "
	thresholdMet     = "Threshold quantity: %v, available: %v. "
	containerOver    = "Container %s was using %s, request is %s, has larger consumption of %v. "
	podOver          = "Pod %s was using %s, request is %s, has larger consumption of %v. "
	pressureExceeded = "The node was under pressure: %s was %s over %s, threshold %s. "
)

// Annotations of the event of an eviction for a threshold (pkg/kubelet/eviction/helpers.go).
const (
	annotationStarved         = "starved_resource"
	annotationContainers      = "offending_containers"
	annotationContainersUsage = "offending_containers_usage"
	annotationPod             = "offending_pod"
	annotationPodUsage        = "offending_pod_usage"
)

// message returns the message of an eviction, and the annotations of its event
// (pkg/kubelet/eviction/helpers.go evictionMessage). It names containers if the pod's object is
// known.
func message(met *Met, c *Candidate) (text string, annotations map[string]string) {
	resourceName := signals[met.Threshold.Signal].resource
	if w := met.Threshold.Window; w > 0 {
		text = fmt.Sprintf(pressureExceeded, met.Threshold.Signal, met.ObservedText(), shortDuration(w),
			met.LimitText())
	} else {
		text = fmt.Sprintf(nodeLow, resourceName) +
			fmt.Sprintf(thresholdMet, met.LimitText(), met.ObservedText())
	}
	annotations = map[string]string{}
	if c.Object == nil || c.Unseen {
		if c.Object == nil {
			annotations[annotationStarved] = string(resourceName)
		}
		return text, annotations // the kubelet sets no annotations for a pod without measurements
	}
	if request := c.Object.memoryOfPod; request != nil && resourceName == v1.ResourceMemory &&
		c.Pod.Memory.WorkingSetBytes.OK {
		used := bytesQuantity(c.Pod.Memory.WorkingSetBytes.V)
		text += fmt.Sprintf(podOver, c.Object.Ref.Name, used, request.String(), resourceName)
		annotations[annotationPod], annotations[annotationPodUsage] = c.Object.Ref.Name, used
	}
	var over, usage []string
	for i := range c.Pod.Containers {
		stats := &c.Pod.Containers[i]
		container := c.Object.container(stats.Name)
		if container == nil { // an ephemeral container, which is never named
			continue
		}
		used, request := containerUsage(resourceName, stats, container)
		if used != nil && used.Cmp(request) > 0 {
			text += fmt.Sprintf(containerOver, container.name, used.String(), request.String(), resourceName)
			over, usage = append(over, container.name), append(usage, used.String())
		}
	}
	annotations[annotationContainers] = strings.Join(over, ",")
	annotations[annotationContainersUsage] = strings.Join(usage, ",")
	annotations[annotationStarved] = string(resourceName)
	return text, annotations
}

func (p *Pod) container(name string) *podContainer {
	for i := range p.containers {
		if p.containers[i].name == name {
			return &p.containers[i]
		}
	}
	return nil
}

// containerUsage returns a container's usage of a resource, and its request. The usage is nil if it
// is unknown or not counted by container.
func containerUsage(what v1.ResourceName, s *stats.ContainerStats,
	c *podContainer) (used *resource.Quantity, request resource.Quantity) {
	switch {
	case what == v1.ResourceEphemeralStorage && s.Rootfs.OK && s.Logs.OK:
		sum := min(stats.SaturatingAdd(s.Rootfs.V.UsedBytes, s.Logs.V.UsedBytes), implausible)
		return resource.NewQuantity(int64(sum), resource.BinarySI), c.storageRequest
	case what == v1.ResourceMemory && s.Memory.WorkingSetBytes.OK:
		return resource.NewQuantity(int64(min(s.Memory.WorkingSetBytes.V, implausible)),
			resource.BinarySI), c.memoryRequest
	}
	return nil, request
}
