// Package guestapi is what the test node's init and the harness on the host say to each other: JSON over HTTP, on a
// port that QEMU forwards from the host's loopback. Only tests and the demo speak it.
package guestapi

import "time"

// Ports inside the guest. QEMU forwards a free loopback port of the host to each.
const (
	PortControl = 7000 // the init's own HTTP service, below
	PortCRI     = 7001 // raw bytes to and from CRISocket
	PortAgent   = 7002 // raw bytes to and from AgentSocket
)

// Sockets behind the forwarded ports.
const (
	CRISocket   = "/run/containerd/containerd.sock"
	AgentSocket = "/run/jettison/jettison.sock"
)

// ImageRoot is where the runtime keeps images and containers' writable layers: on the root disk, or on a disk of its own.
const ImageRoot = "/var/lib/containerd"

// ExecRequest runs one command in the guest and waits for it (POST /exec).
type ExecRequest struct {
	Argv  []string      `json:"argv"`
	Stdin []byte        `json:"stdin,omitempty"`
	Limit time.Duration `json:"limit"` // killed after this long; 0: a minute
	// Detach starts the command, writes its output to this file and returns at once with its PID.
	Detach string `json:"detach,omitempty"`
}

// ExecResult is what became of it.
type ExecResult struct {
	Stdout []byte `json:"stdout"`
	Stderr []byte `json:"stderr"`
	Code   int    `json:"code"` // exit code; 128+n: ended by signal n; -1: not started, see Error
	PID    int    `json:"pid"`
	Error  string `json:"error,omitempty"`
}

// Memory is the node's memory at one instant (GET /memory), all in bytes.
type Memory struct {
	MonotonicNS  int64 `json:"monotonicNs"` // CLOCK_MONOTONIC of the guest
	Total        int64 `json:"total"`
	WorkingSet   int64 `json:"workingSet"`   // root memory.stat: anon + file - inactive_file
	MemAvailable int64 `json:"memAvailable"` // the kernel's estimate, /proc/meminfo
	PerCPUFree   int64 `json:"perCpuFree"`   // free pages on per-CPU lists, which MemAvailable does not count; read when it is low
	OOMKills     int64 `json:"oomKills"`     // /proc/vmstat oom_kill since boot
}

// Available is the lower of the kubelet's memory.available and what the kernel has: MemAvailable and the per-CPU lists.
func (m Memory) Available() int64 { return min(m.Total-m.WorkingSet, m.MemAvailable+m.PerCPUFree) }

// SampleRequest starts the independent sampler (POST /sample/start); POST /sample/stop ends it and returns a Sample.
// The sampler is a locked, real-time thread in the init process: it knows nothing of the agent.
type SampleRequest struct {
	Every     time.Duration `json:"every"`
	Threshold int64         `json:"threshold"` // bytes of Memory.Available
	Cgroup    string        `json:"cgroup"`    // path below /sys/fs/cgroup of the expected victim
}

// Sample is what the sampler saw, in nanoseconds of CLOCK_MONOTONIC; 0: did not happen.
type Sample struct {
	Crossed int64 `json:"crossed"` // first sample below the threshold
	Empty   int64 `json:"empty"`   // first sample after that with cgroup.events populated 0, or without the cgroup
	Back    int64 `json:"back"`    // first sample at or above the threshold after Empty
	Lowest  int64 `json:"lowest"`  // bytes
	MaxGap  int64 `json:"maxGap"`  // longest time between two samples: the error of the figures above
	Samples int64 `json:"samples"`
}
