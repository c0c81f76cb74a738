package frames

import (
	"maps"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/internal/base/podjson"
	"jettison/internal/node/summaryv1"
	"jettison/stats"
)

// Input is the input of FromLook: the data and the actions of one look. Everything except the
// objects may be modified after FromLook returned.
type Input struct {
	Time    time.Time
	Summary *stats.Summary // nil: every source failed
	// Pods are all known objects, which must not be modified any more; nil: none. A Recorder writes
	// them if they differ from those that it wrote last: objects are compared by pointer.
	Pods []*v1.Pod
	// KillErrors has the reasons why pods did not die, by UID.
	KillErrors map[string]string
	// MemoryOnly and ObserveDisks are the values of the eviction.Input.
	MemoryOnly, ObserveDisks bool
	// Node is the node's name.
	Node string
}

// FromLook makes a frame of a look. It keeps references to the objects only, so a Recorder may
// write the frame later. A replay with the same policy makes the same decisions.
func FromLook(l Input) *Frame {
	f := &Frame{at: l.Time, Time: l.Time.UTC().Format(time.RFC3339Nano),
		KillErrors: maps.Clone(l.KillErrors), objects: l.Pods}
	if f.objects == nil {
		f.objects = []*v1.Pod{}
	}
	if l.Summary != nil {
		s := summaryv1.From(l.Summary, l.Node)
		f.Summary, f.Agent = &s, agentOf(l.Summary)
		dropThreads(l.Summary, &s, f.Agent)
		if layout := l.Summary.Node.Layout; layout.OK {
			f.Layout = new(Layout(layout.V))
		}
	}
	if f.Agent != nil {
		f.Agent.MemoryOnly, f.Agent.ObserveDisks = l.MemoryOnly, l.ObserveDisks
	}
	return f
}

func pointer[T any](v stats.Opt[T]) *T {
	if !v.OK {
		return nil
	}
	return &v.V
}

// agentOf returns the data of a Summary that the API's Summary cannot hold.
func agentOf(s *stats.Summary) *Agent {
	n := &s.Node
	a := &Agent{
		Recorded: true, MemAvailableBytes: pointer(n.Memory.KernelAvailableBytes),
		PerCPUFreeBytes:       pointer(n.Memory.PerCPUFreeBytes),
		MemTotalBytes:         pointer(n.Memory.CapacityBytes),
		HugePagesBytes:        pointer(n.Memory.HugePagesBytes),
		ShrinkableBytes:       pointer(n.Memory.ShrinkableBytes),
		AllocatableLimitBytes: pointer(n.Allocatable.LimitBytes),
		AllocatableUnlimited:  n.Allocatable.Unlimited, LayoutUnknown: !n.Layout.OK,
		Pods: make(map[string]*AgentPod, len(s.Pods)),
	}
	if t, f := n.Swap.TotalBytes, n.Swap.FreeBytes; t.OK || f.OK {
		a.Swap = &Swap{TotalBytes: pointer(t), FreeBytes: pointer(f)}
	}
	if most, now := n.PIDs.PodsMax, n.PIDs.PodsCurrent; most.OK && now.OK {
		a.PodsPIDs = &PodsPIDs{Max: most.V, Current: now.V}
	}
	of := &n.Pressure
	if p := (Pressure{Time: of.Memory.Time, CPU: stallsOf(&of.CPU), Memory: stallsOf(&of.Memory),
		IO: stallsOf(&of.IO)}); p != (Pressure{}) {
		a.Pressure = &p
	}
	a.markImplausible(n)
	for _, source := range s.Sources {
		if source.Err == nil {
			continue
		}
		if a.Sources == nil {
			a.Sources = map[string]string{}
		}
		a.Sources[source.Name] = strings.Join(strings.Fields(source.Err.Error()), " ")
	}
	for i := range s.Pods {
		a.Pods[s.Pods[i].PodRef.UID] = agentPodOf(&s.Pods[i])
	}
	return a
}

// markImplausible marks the sources that the decision core ignores because of an implausible number, which a
// frame must not contain. One in the node's memory invalidates both of its signals
// (eviction/signal.go observe).
func (a *Agent) markImplausible(n *stats.NodeStats) {
	const why = "implausible number"
	broken := func(v stats.Opt[uint64]) bool { return v.OK && v.V > maxPlausible }
	m := &n.Memory
	memory := broken(m.CapacityBytes) || broken(m.WorkingSetBytes) || broken(m.KernelAvailableBytes) ||
		broken(m.PerCPUFreeBytes) || broken(m.HugePagesBytes) || broken(m.ShrinkableBytes)
	for name, is := range map[string]bool{
		"memory": memory, "allocatable": memory || broken(n.Allocatable.WorkingSetBytes),
		"pids": broken(n.PIDs.Current) || broken(n.PIDs.PodsCurrent),
	} {
		if is && a.SourceErrors == nil {
			a.SourceErrors = map[string]string{}
		}
		if is {
			a.SourceErrors[name] = why
		}
	}
}

// dropThreads removes the process counts of pods with an implausible number of threads or
// processes, which the decision core ignores.
func dropThreads(from *stats.Summary, s *v1alpha1.Summary, a *Agent) {
	for i := range from.Pods {
		t, p := from.Pods[i].Threads, from.Pods[i].Processes
		if t.OK && t.V > maxPlausible || p.OK && p.V > maxPlausible {
			s.Pods[i].ProcessStats, a.Pods[from.Pods[i].PodRef.UID].Processes = nil, nil
		}
	}
}

// stallsOf returns the shares; nil if the windows were not watched.
func stallsOf(p *stats.Pressure) *Stalls {
	of := func(s *stats.StallShare) *Shares {
		if !s.Over1s.OK && !s.Over10s.OK {
			return nil
		}
		return &Shares{Over1s: pointer(s.Over1s), Over10s: pointer(s.Over10s)}
	}
	if s := (Stalls{Some: of(&p.Some), Full: of(&p.Full)}); s != (Stalls{}) {
		return &s
	}
	return nil
}

func agentPodOf(p *stats.PodStats) *AgentPod {
	out := &AgentPod{
		Threads: pointer(p.Threads), Processes: pointer(p.Processes),
		ShmemBytes:   pointer(p.Memory.ShmemBytes),
		RefaultBytes: pointer(p.Memory.RefaultBytes), KernelBytes: pointer(p.Memory.KernelBytes),
		Events:        eventsOf(p.Events),
		EventsLocal:   eventsOf(p.LocalEvents),
		ReleasedBytes: rangeOf(p.Memory.FreedBytes), MemoryRequest: rangeOf(p.MemoryRequest),
		CPURequestMillis: rangeOf(p.CPURequestMillis),
		Populated:        pointer(p.Populated), Self: p.Self, NodeCritical: p.NodeCritical,
		QOSClass:      p.QOSClass,
		Cgroup:        p.Cgroup,
		StatusRefused: p.StatusRefused,
	}
	if !p.Announced {
		no := false
		out.Announced = &no
	}
	for key, value := range p.Annotations {
		if podjson.IsKeptAnnotation(key) {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[key] = value
		}
	}
	if p.IO.OK {
		out.IO = &IO{ReadBytes: p.IO.V.ReadBytes, WriteBytes: p.IO.V.WriteBytes}
	}
	if l := p.EphemeralStorage.Logs; l.OK {
		out.Logs = &Usage{UsedBytes: l.V.UsedBytes, InodesUsed: l.V.InodesUsed}
	}
	out.Files, out.ExitedLayers = usageOf(p.EphemeralStorage.Files),
		usageOf(p.EphemeralStorage.ExitedLayers)
	if u := &p.EphemeralStorage.Unnamed; u.Node.OK || u.Image.OK || u.Container.OK {
		out.Unnamed = &Unnamed{usageOf(u.Node), usageOf(u.Image), usageOf(u.Container)}
	}
	for i := range p.EphemeralStorage.Volumes {
		if v := &p.EphemeralStorage.Volumes[i]; v.Memory {
			out.MemoryVolumes = append(out.MemoryVolumes, v.Name)
		}
	}
	return out
}

func usageOf(u stats.Opt[stats.FsUsage]) *Usage {
	if !u.OK {
		return nil
	}
	return &Usage{UsedBytes: u.V.UsedBytes, InodesUsed: u.V.InodesUsed}
}

func eventsOf(e stats.Opt[stats.MemoryEvents]) *Events {
	if !e.OK {
		return nil
	}
	return new(Events(e.V))
}

func rangeOf(r stats.Opt[stats.Range]) *Range {
	if !r.OK {
		return nil
	}
	return new(Range(r.V))
}
