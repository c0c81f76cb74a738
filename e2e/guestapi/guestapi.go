// Package guestapi defines the protocol between the test node's init and the harness on the host:
// JSON over HTTP, on a port that QEMU forwards from the host's loopback. Only tests and the demo
// use it.
package guestapi

import "time"

// Ports inside the guest. QEMU forwards a free loopback port of the host to each.
const (
	PortControl = 7000 // the init's own HTTP service, below
	PortCRI     = 7001 // raw bytes to and from the runtime's socket
	PortAgent   = 7002 // raw bytes to and from AgentSocket
)

// AgentSocket is api.DefaultSocket, repeated here so that the guest's init does not link the
// Kubernetes types.
const AgentSocket = "/run/jettison/jettison.sock"

// Runtime describes a container runtime that the node can run.
type Runtime struct {
	Name   string // of its program and of its systemd unit
	Socket string // of its CRI
	// Root is the folder of images and writable layers: on the root disk, or on a separate disk.
	Root string
	// Containers is a folder with an entry for each container, and constantly many others.
	Containers string
}

// The runtimes.
var (
	Containerd = Runtime{"containerd", "/run/containerd/containerd.sock", "/var/lib/containerd", "/var/lib/containerd/io.containerd.grpc.v1.cri/containers"}
	CRIO       = Runtime{"crio", "/run/crio/crio.sock", "/var/lib/containers/storage", "/var/lib/containers/storage/overlay-containers"}
)

// Program returns the path of the runtime's program.
func (r Runtime) Program() string { return "/usr/local/bin/" + r.Name }

// Log returns the file with the runtime's output.
func (r Runtime) Log() string { return "/var/log/" + r.Name + ".log" }

// PIDFile returns the file with the runtime's process id, on a node without systemd.
func (r Runtime) PIDFile() string { return "/run/" + r.Name + ".pid" }

// Registry is the address at which the guest serves image tars to its runtime, read-only.
const Registry = "127.0.0.1:7003"

// ExecRequest runs one command in the guest and waits for it (POST /exec).
type ExecRequest struct {
	Argv  []string      `json:"argv"`
	Stdin []byte        `json:"stdin,omitempty"`
	Limit time.Duration `json:"limit"` // killed after this long; 0: a minute
	// Detach starts the command, writes its output to this file and returns immediately with its
	// PID.
	Detach string `json:"detach,omitempty"`
}

// ExecResult is the result of the command.
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

// Available returns the lower of the kubelet's memory.available and the kernel's available memory:
// MemAvailable and the per-CPU lists.
func (m Memory) Available() int64 { return min(m.Total-m.WorkingSet, m.MemAvailable+m.PerCPUFree) }

// Kinds of available memory that the sampler can use.
const (
	Lower        = "lower"        // the lower of the next two
	WorkingSet   = "workingSet"   // Total - WorkingSet
	Kernel       = "kernel"       // MemAvailable + PerCPUFree
	MemAvailable = "memAvailable" // MemAvailable alone
)

// By returns the available memory of one of these kinds; empty: Lower.
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

// BallastRequest makes a tmpfs outside of all pods grow or shrink until this much memory is
// available (POST /ballast). The answer is the Memory then. It is less if there is no ballast left
// to free.
type BallastRequest struct {
	Available int64  `json:"available"` // bytes
	By        string `json:"by"`        // as SampleRequest.By
	// Once makes a single step, by the present difference. Otherwise the ballast is corrected until
	// it fits, which would use up the memory that a killed pod frees.
	Once bool `json:"once"`
}

// SampleRequest starts the independent sampler (POST /sample/start). POST /sample/stop ends it and
// returns a Sample. The sampler is a separate process with one locked, real-time thread,
// independent of the agent.
type SampleRequest struct {
	Every     time.Duration `json:"every"`     // 0: a millisecond
	Threshold int64         `json:"threshold"` // bytes
	Whole     int64         `json:"whole"`     // bytes at which all of the victim's memory is back; 0: not measured
	By        string        `json:"by"`        // one of the above; empty: Lower
	Cgroup    string        `json:"cgroup"`    // path below /sys/fs/cgroup of the expected victim
}

// Sample has the sampler's results, in nanoseconds of CLOCK_MONOTONIC; 0: did not happen.
type Sample struct {
	Crossed int64 `json:"crossed"` // first sample below the threshold
	Empty   int64 `json:"empty"`   // first sample after that with cgroup.events populated 0, or without the cgroup
	// Back is the first sample at or above the threshold after Crossed. It may be before Empty, but
	// a sample below the threshold before Empty resets it.
	Back    int64 `json:"back"`
	Whole   int64 `json:"whole"`  // first sample at or above SampleRequest.Whole after Crossed
	Lowest  int64 `json:"lowest"` // bytes
	MaxGap  int64 `json:"maxGap"` // longest time between two samples: the error of the figures above
	GapP99  int64 `json:"gapP99"`
	Samples int64 `json:"samples"`

	MeanCost   int64    `json:"meanCost"` // of a sample: the sampler's CPU time
	MaxCost    int64    `json:"maxCost"`
	Dear       int64    `json:"dear"`              // reads of memory.stat and zoneinfo
	MaxOff     int64    `json:"maxOff"`            // bytes by which an estimate was off when one of them was read
	WallOffset int64    `json:"wallOffset"`        // CLOCK_REALTIME - CLOCK_MONOTONIC
	Refused    []string `json:"refused,omitempty"` // refused calls of mlockall and SCHED_FIFO, with the errors
}

// Offer has the names of the images of a tar that the guest's registry serves from now on (POST
// /registry?path=TAR).
type Offer struct {
	Images []string `json:"images"`
}
