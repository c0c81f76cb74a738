package stats

// OutsideContainer is a running container whose processes are not below its pod's cgroup, as with
// different cgroup drivers of the kubelet and the runtime.
type OutsideContainer struct {
	ID string
	// Cgroup is named for the container and has only its processes. Empty: the process shares a cgroup
	// with others, and Process identifies it.
	Cgroup   string
	CgroupID CgroupID // of the cgroup that was read; zero: none
	Process  ProcessID
}

// ProcessID identifies a process in the node's PID namespace: PIDs are reused.
type ProcessID struct {
	PID   int
	Start uint64 // clock ticks since boot (proc_pid_stat(5), starttime)
}

// Located reports whether the kernel reports the end of the pod's processes: without a known cgroup or
// process only the runtime does.
func (p *PodStats) Located() bool { return p.Cgroup != "" || len(p.Outside) > 0 }

// Add adds the usage of a container outside the pod's cgroup. A sum is absent if one of its parts
// is. Limits and LocalEvents stay those of the pod's cgroup.
func (p *PodStats) Add(o *PodStats) {
	m, n := &p.Memory, &o.Memory
	addCounts([][2]*Opt[uint64]{
		{&m.UsageBytes, &n.UsageBytes}, {&m.WorkingSetBytes, &n.WorkingSetBytes},
		{&m.AnonBytes, &n.AnonBytes}, {&m.ShmemBytes, &n.ShmemBytes}, {&m.SwapBytes, &n.SwapBytes},
		{&m.PageFaults, &n.PageFaults}, {&m.MajorPageFaults, &n.MajorPageFaults},
		{&m.RefaultBytes, &n.RefaultBytes}, {&m.KernelBytes, &n.KernelBytes},
		{&p.Threads, &o.Threads}, {&p.Processes, &o.Processes},
		{&p.CPU.NanoCores, &o.CPU.NanoCores}, {&p.Written.Bytes, &o.Written.Bytes},
		{&p.Written.Inodes, &o.Written.Inodes},
	})
	m.FreedBytes = Opt[Range]{V: m.FreedBytes.V.Add(n.FreedBytes.V),
		OK: m.FreedBytes.OK && n.FreedBytes.OK}
	p.CPU.Usage.V += o.CPU.Usage.V
	p.CPU.Usage.OK = p.CPU.Usage.OK && o.CPU.Usage.OK
	p.IO.V.ReadBytes += o.IO.V.ReadBytes
	p.IO.V.WriteBytes += o.IO.V.WriteBytes
	p.IO.OK = p.IO.OK && o.IO.OK
	for _, d := range o.Written.Devices {
		p.Written.add(d)
	}
	e, f := &p.Events.V, &o.Events.V
	*e = MemoryEvents{Low: e.Low + f.Low, High: e.High + f.High, Max: e.Max + f.Max, OOM: e.OOM + f.OOM,
		OOMKill: e.OOMKill + f.OOMKill, OOMGroupKill: e.OOMGroupKill + f.OOMGroupKill}
	p.Events.OK = p.Events.OK && o.Events.OK
	for _, s := range [][2]*Opt[PSIStats]{{&p.MemoryPressure, &o.MemoryPressure},
		{&p.CPUPressure, &o.CPUPressure}, {&p.IOPressure, &o.IOPressure}} {
		if s[1].OK && s[1].V.Some.Total > s[0].V.Some.Total { // stalls overlap: the longest counts
			*s[0] = *s[1]
		}
	}
	p.Populated = Some(p.Populated.V || o.Populated.V)
	p.Containers = append(p.Containers, o.Containers...)
}

// AtLeast raises the memory to that of processes in a cgroup with others. Pages that they used
// before they were moved there count in the pod's cgroup too, so the larger figure is taken, not
// the sum.
func (m *PodMemoryStats) AtLeast(anon, shmem uint64) {
	raise := func(o *Opt[uint64], v uint64) { *o = Some(max(o.V, v)) }
	sum := SaturatingAdd(anon, shmem)
	raise(&m.UsageBytes, sum)
	raise(&m.WorkingSetBytes, sum)
	if m.Quick {
		return
	}
	raise(&m.AnonBytes, anon)
	raise(&m.ShmemBytes, shmem)
	if f := &m.FreedBytes; f.OK {
		f.V = Range{Min: max(f.V.Min, anon), Max: max(f.V.Max, sum)}
	}
}

func addCounts(pairs [][2]*Opt[uint64]) {
	for _, p := range pairs {
		*p[0] = Opt[uint64]{V: SaturatingAdd(p[0].V, p[1].V), OK: p[0].OK && p[1].OK}
	}
}

func (w *WrittenStats) add(d DeviceWrites) {
	for i := range w.Devices {
		if w.Devices[i].Device == d.Device {
			w.Devices[i].Bytes += d.Bytes
			return
		}
	}
	w.Devices = append(w.Devices, d)
}
