package cri

import (
	"encoding/json"
	"errors"
	"math"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// LinuxResources are limits as the kubelet told them to the runtime. Absent is what nobody set.
type LinuxResources struct {
	MemoryLimit *uint64           // bytes
	CPUShares   *uint64           // relative weight, 1024 a CPU requested; the kubelet writes 2 for none
	CPUQuota    *int64            // microseconds of CPU time in each CPUPeriod
	CPUPeriod   *int64            // microseconds
	Unified     map[string]string // cgroup v2 file to what is written into it: "memory.high" to "1073741824"
}

// verboseInfo is what is read of the verbose status: JSON under the key "info", of a sandbox or a container. containerd
// writes the CRI's own config beside the OCI spec (internal/cri/server/container_status.go and
// podsandbox/types/sandbox_info.go), CRI-O the spec only (server/container_status.go, createContainerInfo).
type verboseInfo struct {
	SandboxID string `json:"sandboxID"` // of a container
	PID       *int64 `json:"pid"`
	Config    struct {
		Linux struct {
			CgroupParent string        `json:"cgroup_parent"` // of a sandbox
			Resources    *criResources `json:"resources"`
		} `json:"linux"`
	} `json:"config"`
	// Resources of a sandbox after the kubelet changed them in place, which leaves its config alone
	// (containerd internal/cri/server/sandbox_status.go, setUpdatedResources).
	Resources struct {
		Linux *criResources `json:"linux"`
	} `json:"resources"`
	RuntimeSpec struct {
		Process struct {
			OOMScoreAdj *int64 `json:"oomScoreAdj"`
		} `json:"process"`
		Linux struct {
			CgroupsPath string `json:"cgroupsPath"`
			Namespaces  []struct {
				Type string `json:"type"`
				Path string `json:"path"`
			} `json:"namespaces"`
			Resources ociResources `json:"resources"`
		} `json:"linux"`
	} `json:"runtimeSpec"`
}

// criResources is runtime.v1.LinuxContainerResources as Go's encoding/json writes it; what is 0 is not written.
type criResources struct {
	OOMScoreAdj *int64            `json:"oom_score_adj"`
	MemoryLimit int64             `json:"memory_limit_in_bytes"`
	CPUShares   int64             `json:"cpu_shares"`
	CPUQuota    int64             `json:"cpu_quota"`
	CPUPeriod   int64             `json:"cpu_period"`
	Unified     map[string]string `json:"unified"`
}

// ociResources is the part of opencontainers/runtime-spec config-linux.md that says the same.
type ociResources struct {
	Memory struct {
		Limit int64 `json:"limit"`
	} `json:"memory"`
	CPU struct {
		Shares int64 `json:"shares"`
		Quota  int64 `json:"quota"`
		Period int64 `json:"period"`
	} `json:"cpu"`
	Unified map[string]string `json:"unified"`
}

// parseVerbose takes what it finds: an older or other runtime leaves fields absent, a field of another type (a number that
// does not fit) is absent by itself, and what is not JSON says nothing.
func parseVerbose(info map[string]string) (v verboseInfo) {
	err := json.Unmarshal([]byte(info["info"]), &v)
	if wrongType := (*json.UnmarshalTypeError)(nil); err != nil && !errors.As(err, &wrongType) {
		return verboseInfo{}
	}
	return v
}

// maxPID is the largest that a 64-bit Linux gives out (PID_MAX_LIMIT, include/linux/threads.h).
const maxPID = 4 << 20

func (v verboseInfo) pid() int {
	if v.PID == nil || *v.PID < 0 || *v.PID > maxPID {
		return 0
	}
	return int(*v.PID)
}

// podResources are those of a sandbox: the latest that the kubelet told the runtime.
func (v verboseInfo) podResources() *LinuxResources {
	r := v.Resources.Linux
	if r == nil {
		r = v.Config.Linux.Resources
	}
	if r == nil {
		return nil
	}
	return &LinuxResources{MemoryLimit: size(r.MemoryLimit), CPUShares: size(r.CPUShares), CPUQuota: amount(r.CPUQuota), CPUPeriod: amount(r.CPUPeriod), Unified: r.Unified}
}

// containerResources takes each limit from the best that names it: the status, which follows changes in place; the OCI spec;
// the config the container was made from.
func (v verboseInfo) containerResources(status *runtimev1.LinuxContainerResources) LinuxResources {
	spec, config := v.RuntimeSpec.Linux.Resources, v.Config.Linux.Resources
	if config == nil {
		config = &criResources{}
	}
	out := LinuxResources{
		MemoryLimit: size(status.GetMemoryLimitInBytes(), spec.Memory.Limit, config.MemoryLimit),
		CPUShares:   size(status.GetCpuShares(), spec.CPU.Shares, config.CPUShares),
		CPUQuota:    amount(status.GetCpuQuota(), spec.CPU.Quota, config.CPUQuota),
		CPUPeriod:   amount(status.GetCpuPeriod(), spec.CPU.Period, config.CPUPeriod),
	}
	for _, unified := range []map[string]string{status.GetUnified(), spec.Unified, config.Unified} {
		if len(unified) > 0 {
			out.Unified = unified
			break
		}
	}
	return out
}

// amount is the first that is set: 0 is "not specified" in the CRI, and less is "no limit" in the OCI spec, or nonsense.
func amount(from ...int64) *int64 {
	for _, n := range from {
		if n > 0 {
			return &n
		}
	}
	return nil
}

func size(from ...int64) *uint64 {
	n := amount(from...)
	if n == nil || *n == math.MaxInt64 { // how "no limit" is written where a number must be
		return nil
	}
	out := uint64(*n)
	return &out
}
