package eviction

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"jettison/stats"
)

// Messages of evictions for a pod's own limits (pkg/kubelet/eviction/helpers.go).
const (
	emptyDirMessage  = "Usage of EmptyDir volume %q exceeds the limit %q. "
	podStorage       = "Pod ephemeral local storage usage exceeds the total limit of containers %s. "
	containerStorage = "Container %s exceeded its local ephemeral storage limit %q. "
)

// offenders returns an eviction for each pod over its own limits on local storage, sorted by UID. A
// pod without an object has unknown limits and exceeds none. Neither does a pod that the runtime
// has not announced, because its object may be another pod's. A pod that is being killed does not
// delay other evictions: it is left out while it terminates and while it is set aside.
func (m *Manager) offenders(now time.Time, in Input) (evictions []Eviction) {
	if !m.config.LocalStorage || in.ObserveDisks || in.MemoryOnly || len(in.Pods) == 0 {
		return nil
	}
	for i := range in.Summary.Pods {
		pod := &in.Summary.Pods[i]
		object := in.object(pod)
		if object == nil || !pod.Announced || !object.Limited() || empty(pod, object) {
			continue
		}
		signal, message := exceeds(pod, object)
		dying := m.evictions.terminating(pod.PodRef.UID)
		if signal == "" || dying != nil && !dying.hasGracePeriod() ||
			now.Before(m.evictions.history.aside[pod.PodRef.UID].until) {
			continue
		}
		if c := m.config.Policy.candidate(pod, object); c.Protected != "" {
			continue
		}
		evictions = append(evictions, Eviction{
			Pod: clonePod(pod, object), Signal: signal, GracePeriodSeconds: hardGrace, Reason: ReasonEvicted,
			Message:         message,
			CutsGracePeriod: dying != nil,
		})
	}
	slices.SortFunc(evictions, func(a, b Eviction) int {
		return strings.Compare(a.Pod.PodRef.UID, b.Pod.PodRef.UID)
	})
	return evictions
}

// Limited reports whether the pod has a limit on local storage.
func (p *Pod) Limited() bool { return len(p.emptyDirs) > 0 || p.storageLimit != nil }

// exceeds returns the first limit on local storage that a pod exceeds
// (pkg/kubelet/eviction/eviction_manager.go localStorageEviction), or an empty signal. It uses only
// the usage counted now, so that a file that was moved does not count twice. A writable layer counts
// against its container on any file system; the kubelet ignores it on an image file system of its
// own, but counts it against the pod (kubernetes#139205).
func exceeds(pod *stats.PodStats, object *Pod) (signal stats.Signal, message string) {
	s := &pod.EphemeralStorage
	for i := range object.emptyDirs {
		dir := &object.emptyDirs[i]
		for j := range s.Volumes {
			if v := &s.Volumes[j]; v.Name == dir.name && beyond(v.Counted(), dir.limit) {
				return SignalEmptyDirFsLimit, fmt.Sprintf(emptyDirMessage, dir.name, dir.text)
			}
		}
	}
	if l := object.storageLimit; l != nil && s.UsedBytes.OK && beyond(s.UsedBytes.V, bytes(*l)) {
		return SignalEphemeralPodFsLimit, fmt.Sprintf(podStorage, l.String())
	}
	for i := range pod.Containers {
		c := &pod.Containers[i]
		var used uint64
		if c.Logs.OK {
			used = c.Logs.V.Counted()
		}
		if c.Rootfs.OK {
			used = stats.SaturatingAdd(used, c.Rootfs.V.Counted())
		}
		for j := range object.containers {
			if o := &object.containers[j]; o.name == c.Name && o.storageLimit.OK &&
				beyond(used, o.storageLimit.V) {
				return SignalEphemeralContainerFsLimit, fmt.Sprintf(containerStorage, o.name,
					o.storageLimitText)
			}
		}
	}
	return "", ""
}

// beyond reports whether used exceeds limit. An implausible value exceeds no limit.
func beyond(used, limit uint64) bool { return used > limit && used <= implausible }
