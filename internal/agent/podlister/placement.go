package podlister

import (
	"jettison/api"
	"jettison/internal/base/logthrottle"
	"jettison/stats/read"
)

// placement logs the first containers of lists that do not run in their pods' cgroups, or may not.
type placement struct {
	log     *logthrottle.Logger
	outside bool // logged: containers outside their pods' cgroups
	foreign bool // logged: a container with a process that is not shown to be its own
	hidden  bool // logged: a container without a known process

	unlocated map[string]bool // IDs of the containers that the last list did not locate
}

// onListed processes a list. A container that only one list does not locate may have exited
// meanwhile.
func (p *placement) onListed(pods read.Index) {
	unlocated := map[string]bool{}
	for _, pod := range pods {
		if !p.outside && len(pod.Outside) > 0 {
			p.logOutside(pod)
		}
		for _, c := range pod.Unlocated {
			if unlocated[c.ID] = true; p.unlocated[c.ID] {
				p.logUnlocated(pod, c.ID, c.Cgroup)
			}
		}
	}
	p.unlocated = unlocated
}

func (p *placement) logOutside(pod *read.Pod) {
	p.outside = true
	c := &pod.Outside[0]
	//log: Containers run outside their pods' cgroups. The agent measures and kills them where they
	//  are. Limits of the pods' cgroups do not apply to them. Of a process in a cgroup with others
	//  (key process, otherwise 0) only the anonymous and shared memory is measured.
	//do: Set the same cgroup driver for the kubelet and the runtime, and restart the pods. With
	//  cgroupsPerQOS: false, expect this. If the key process is not 0, find what moved it out of
	//  its cgroup, and restart the pod.
	p.log.Warn("containers outside their pods' cgroups", api.EventPod.Attr(), "pod", nameOf(pod),
		"container", c.ID, "cgroup", c.Cgroup, "process", c.Process.PID)
}

// logUnlocated logs a container whose processes are not known. cgroup is that of the process that
// the runtime reports; empty: none.
func (p *placement) logUnlocated(pod *read.Pod, id, cgroup string) {
	switch {
	case cgroup == "" && !p.hidden:
		p.hidden = true
		//log: The runtime reports no process of this container, so the agent assumes that it runs
		//  in its pod's cgroup. A pod whose cgroup has no process is not measured, and only the
		//  runtime kills it.
		p.log.Info("container process unknown", api.EventPod.Attr(), "pod", nameOf(pod),
			"container", id)
	case cgroup != "" && !p.foreign:
		p.foreign = true
		//log: The runtime reports a process of this container that is outside the pod's cgroup and
		//  cannot be shown to be the container's. The agent does not measure it, and only the
		//  runtime kills it.
		//do: Set the same cgroup driver for the kubelet and the runtime, and for Kata
		//  sandbox_cgroup_only = true, because Kata and gVisor name cgroups for the sandbox.
		//  Restart the pods.
		p.log.Warn("container cannot be located", api.EventPod.Attr(), "pod", nameOf(pod),
			"container", id, "cgroup", cgroup)
	}
}

func nameOf(pod *read.Pod) string { return pod.PodRef.Namespace + "/" + pod.PodRef.Name }
