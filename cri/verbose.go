package cri

import (
	"encoding/json"
	"errors"
	"math"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// verboseInfo is what is read of the verbose status: JSON under the key "info", of a sandbox or a
// container. containerd writes the CRI's own config beside the OCI spec
// (internal/cri/server/container_status.go and podsandbox/types/sandbox_info.go), CRI-O the spec
// only (server/container_status.go, createContainerInfo).
type verboseInfo struct {
	SandboxID string `json:"sandboxID"` // of a container
	Image     string `json:"image"`     // of a sandbox's own process
	PID       *int64 `json:"pid"`
	Config    struct {
		Linux struct {
			CgroupParent string        `json:"cgroup_parent"` // of a sandbox
			Overhead     *criResources `json:"overhead"`      // likewise; {} where there is none
			Resources    *criResources `json:"resources"`
		} `json:"linux"`
	} `json:"config"`
	RuntimeSpec struct {
		Process struct {
			OOMScoreAdj *int64 `json:"oomScoreAdj"`
		} `json:"process"`
		Linux struct {
			CgroupsPath string       `json:"cgroupsPath"`
			Resources   ociResources `json:"resources"`
		} `json:"linux"`
		Annotations crioAnnotations `json:"annotations"`
	} `json:"runtimeSpec"`
}

// Annotations of the OCI spec of a sandbox in which CRI-O keeps what it was told of the pod as a
// whole, as JSON of criResources (server/sandbox_run_linux.go, pkg/annotations); later versions
// have new names for them. It adds the pod's own annotations after them.
const (
	crioOldOverhead  = "io.kubernetes.cri-o.PodLinuxOverhead"
	crioOverhead     = "pod-linux-overhead.crio.io"
	crioOldResources = "io.kubernetes.cri-o.PodLinuxResources"
	crioResources    = "pod-linux-resources.crio.io"
)

// crioAnnotations are these.
type crioAnnotations struct {
	OldOverhead  string `json:"io.kubernetes.cri-o.PodLinuxOverhead"`
	Overhead     string `json:"pod-linux-overhead.crio.io"`
	OldResources string `json:"io.kubernetes.cri-o.PodLinuxResources"`
	Resources    string `json:"pod-linux-resources.crio.io"`
}

// of are the overhead and the resources that they tell of a pod that has these annotations of its
// own; nil: not told. Where the pod has one by the same name, it may be the pod's own word.
func (a *crioAnnotations) of(pod map[string]string) (overhead, made *criResources) {
	for _, said := range []struct {
		name, text string
		to         **criResources
	}{
		{crioOverhead, a.Overhead, &overhead}, {crioOldOverhead, a.OldOverhead, &overhead},
		{crioResources, a.Resources, &made}, {crioOldResources, a.OldResources, &made},
	} {
		var r *criResources
		if _, own := pod[said.name]; !own && json.Unmarshal([]byte(said.text), &r) == nil && r != nil {
			*said.to = r
		}
	}
	return overhead, made
}

// runtimeConfig is what is read of the runtime's own verbose status: JSON under the key "config"
// (containerd 2: pinnedImages of the image plugin; before: sandboxImage).
type runtimeConfig struct {
	SandboxImage string            `json:"sandboxImage"`
	PinnedImages map[string]string `json:"pinnedImages"`
	PauseImage   string            `json:"pause_image"`
}

// criResources is runtime.v1.LinuxContainerResources as Go's encoding/json writes it; what is 0 is
// not written.
type criResources struct {
	OOMScoreAdj *int64            `json:"oom_score_adj"`
	MemoryLimit int64             `json:"memory_limit_in_bytes"`
	CPUShares   int64             `json:"cpu_shares"`
	Unified     map[string]string `json:"unified"`
}

// ociResources is the part of opencontainers/runtime-spec config-linux.md that says the same.
type ociResources struct {
	Memory struct {
		Limit int64 `json:"limit"`
	} `json:"memory"`
	CPU struct {
		Shares int64 `json:"shares"`
	} `json:"cpu"`
	Unified map[string]string `json:"unified"`
}

// parseVerbose takes what it finds: an older or other runtime leaves fields absent, a field of
// another type (a number that does not fit) is absent by itself, and what is not JSON says nothing.
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

// resources are the limits of a container, as in Container.
type resources struct {
	memory, cpuShares *uint64
	unified           map[string]string
}

// containerResources takes each from the best that names it: the status, which follows changes in
// place; the OCI spec; the config that the container was made from.
func (v verboseInfo) containerResources(status *runtimev1.LinuxContainerResources) (out resources) {
	spec, config := v.RuntimeSpec.Linux.Resources, v.Config.Linux.Resources
	if config == nil {
		config = &criResources{}
	}
	out.memory = size(status.GetMemoryLimitInBytes(), spec.Memory.Limit, config.MemoryLimit)
	out.cpuShares = size(status.GetCpuShares(), spec.CPU.Shares, config.CPUShares)
	for _, unified := range []map[string]string{status.GetUnified(), spec.Unified, config.Unified} {
		if len(unified) > 0 {
			out.unified = unified
			break
		}
	}
	return out
}

// size is the first that is set: 0 is "not specified" in the CRI, and less is "no limit" in the OCI
// spec, or nonsense.
func size(from ...int64) *uint64 {
	for _, n := range from {
		if n > 0 {
			if n == math.MaxInt64 { // how "no limit" is written where a number must be
				return nil
			}
			out := uint64(n)
			return &out
		}
	}
	return nil
}
