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

// Sockets behind the forwarded ports. AgentSocket is api.DefaultSocket, written out: the guest's init stays without the Kubernetes types.
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
	PerCPUFree   int64 `json:"perCpuFree"`   // free pages on per-CPU lists, which MemAvailable does not count
	OOMKills     int64 `json:"oomKills"`     // /proc/vmstat oom_kill since boot
}

// Available is the lower of the kubelet's memory.available and what the kernel has: MemAvailable and the per-CPU lists.
func (m Memory) Available() int64 { return min(m.Total-m.WorkingSet, m.MemAvailable+m.PerCPUFree) }

// What Memory is sampled by.
const (
	Lower        = "lower"        // the lower of the next two
	WorkingSet   = "workingSet"   // Total - WorkingSet
	Kernel       = "kernel"       // MemAvailable + PerCPUFree
	MemAvailable = "memAvailable" // MemAvailable alone
)

// By is the memory that is available by one of them; empty: Lower.
func (m Memory) By(what string) int64 {
	switch what {
	case WorkingSet:
		return m.Total - m.WorkingSet
	case Kernel:
		return m.MemAvailable + m.PerCPUFree
	case MemAvailable:
		return m.MemAvailable
	}
	return m.Available()
}

// BallastRequest has a tmpfs outside of all pods take so much memory, or give so much back, that this much is available (POST
// /ballast). The answer is the Memory then. Where there is nothing left to give back it is less.
type BallastRequest struct {
	Available int64  `json:"available"` // bytes
	By        string `json:"by"`        // as SampleRequest.By
	// Once: in one step, of what is missing now. Else it is corrected until it fits, which would eat what a killed pod gives back.
	Once bool `json:"once"`
}

// SampleRequest starts the independent sampler (POST /sample/start); POST /sample/stop ends it and returns a Sample.
// The sampler is a process of its own with one locked, real-time thread at work: it knows nothing of the agent.
type SampleRequest struct {
	Every     time.Duration `json:"every"`     // 0: a millisecond
	Threshold int64         `json:"threshold"` // bytes
	Whole     int64         `json:"whole"`     // bytes at which all of the victim's memory is back; 0: not asked
	By        string        `json:"by"`        // one of the above; empty: Lower
	Cgroup    string        `json:"cgroup"`    // path below /sys/fs/cgroup of the expected victim
}

// Sample is what the sampler saw, in nanoseconds of CLOCK_MONOTONIC; 0: did not happen.
type Sample struct {
	Crossed int64 `json:"crossed"` // first sample below the threshold
	Empty   int64 `json:"empty"`   // first sample after that with cgroup.events populated 0, or without the cgroup
	// Back is the first sample at or above the threshold after Crossed. It may be before Empty, but a sample below the threshold
	// before Empty makes it start anew.
	Back    int64 `json:"back"`
	Whole   int64 `json:"whole"`  // first sample at or above SampleRequest.Whole after Crossed
	Lowest  int64 `json:"lowest"` // bytes
	MaxGap  int64 `json:"maxGap"` // longest time between two samples: the error of the figures above
	GapP99  int64 `json:"gapP99"`
	Samples int64 `json:"samples"`

	MeanCost   int64    `json:"meanCost"` // of a sample: what the sampler took of the CPU
	MaxCost    int64    `json:"maxCost"`
	Dear       int64    `json:"dear"`              // reads of memory.stat and zoneinfo
	MaxOff     int64    `json:"maxOff"`            // bytes by which an estimate was off when one of them was read
	WallOffset int64    `json:"wallOffset"`        // CLOCK_REALTIME - CLOCK_MONOTONIC
	Refused    []string `json:"refused,omitempty"` // what of mlockall and SCHED_FIFO was refused, and why
}
