package cri

import (
	"encoding/json"
	"errors"
	"math"
	"path"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// verboseInfo holds the needed parts of the verbose status: JSON under the key "info", of a sandbox
// or a container. containerd writes the CRI's own config in addition to the OCI spec
// (internal/cri/server/container_status.go and podsandbox/types/sandbox_info.go), CRI-O the spec
// only (server/container_status.go, createContainerInfo).
type verboseInfo struct {
	SandboxID string `json:"sandboxID"` // of a container
	Image     string `json:"image"`     // of a sandbox's own process
	PID       *int64 `json:"pid"`
	Config    struct {
		Linux struct {
			CgroupParent string        `json:"cgroup_parent"` // of a sandbox
			Overhead     *criResources `json:"overhead"`      // of a sandbox; {} without an overhead
			Resources    *criResources `json:"resources"`
		} `json:"linux"`
	} `json:"config"`
	RuntimeSpec struct {
		Process struct {
			OOMScoreAdj *int64 `json:"oomScoreAdj"`
		} `json:"process"`
		Root struct {
			Path string `json:"path"`
		} `json:"root"`
		Linux struct {
			CgroupsPath string       `json:"cgroupsPath"`
			Resources   ociResources `json:"resources"`
		} `json:"linux"`
		Annotations crioAnnotations `json:"annotations"`
	} `json:"runtimeSpec"`
}

// Annotations of the OCI spec of a sandbox in which CRI-O stores the resources of the whole pod, as
// JSON of criResources (server/sandbox_run_linux.go, pkg/annotations). Later versions use new
// names. CRI-O adds the pod's own annotations afterwards, which may overwrite these.
const (
	crioOldOverhead  = "io.kubernetes.cri-o.PodLinuxOverhead"
	crioOverhead     = "pod-linux-overhead.crio.io"
	crioOldResources = "io.kubernetes.cri-o.PodLinuxResources"
	crioResources    = "pod-linux-resources.crio.io"
)

// crioAnnotations holds the values of CRI-O's annotations.
type crioAnnotations struct {
	OldOverhead  string `json:"io.kubernetes.cri-o.PodLinuxOverhead"`
	Overhead     string `json:"pod-linux-overhead.crio.io"`
	OldResources string `json:"io.kubernetes.cri-o.PodLinuxResources"`
	Resources    string `json:"pod-linux-resources.crio.io"`
}

// decode returns the overhead and resources in the annotations; nil: none. It ignores an annotation
// that the pod itself has too, because a tenant may have written it.
func (a *crioAnnotations) decode(pod map[string]string) (overhead, fromCRIO *criResources) {
	for _, entry := range []struct {
		name, text string
		to         **criResources
	}{
		{crioOverhead, a.Overhead, &overhead}, {crioOldOverhead, a.OldOverhead, &overhead},
		{crioResources, a.Resources, &fromCRIO}, {crioOldResources, a.OldResources, &fromCRIO},
	} {
		var r *criResources
		if _, own := pod[entry.name]; !own && json.Unmarshal([]byte(entry.text), &r) == nil && r != nil {
			*entry.to = r
		}
	}
	return overhead, fromCRIO
}

// runtimeConfig holds the needed parts of the runtime's own verbose status: JSON under the key
// "config" (containerd 2: pinnedImages of the image plugin; before: sandboxImage).
type runtimeConfig struct {
	SandboxImage string            `json:"sandboxImage"`
	PinnedImages map[string]string `json:"pinnedImages"`
	PauseImage   string            `json:"pause_image"`
}

// criResources is runtime.v1.LinuxContainerResources as written by Go's encoding/json, without zero
// fields.
type criResources struct {
	OOMScoreAdj *int64            `json:"oom_score_adj"`
	MemoryLimit int64             `json:"memory_limit_in_bytes"`
	CPUShares   int64             `json:"cpu_shares"`
	Unified     map[string]string `json:"unified"`
}

// ociResources is the equivalent part of opencontainers/runtime-spec config-linux.md.
type ociResources struct {
	Memory struct {
		Limit int64 `json:"limit"`
	} `json:"memory"`
	CPU struct {
		Shares int64 `json:"shares"`
	} `json:"cpu"`
	Unified map[string]string `json:"unified"`
}

// parseVerbose decodes the known fields. Fields that the runtime does not write are absent. If one
// field has the wrong type, or a number that does not fit, only that field is absent. If the JSON
// is invalid, all fields are absent.
func parseVerbose(info map[string]string) (v verboseInfo) {
	err := json.Unmarshal([]byte(info["info"]), &v)
	if wrongType := (*json.UnmarshalTypeError)(nil); err != nil && !errors.As(err, &wrongType) {
		return verboseInfo{}
	}
	return v
}

// maxPID is the largest PID of a 64-bit Linux (PID_MAX_LIMIT, include/linux/threads.h).
const maxPID = 4 << 20

// root returns the mount point of a container's root. CRI-O writes it into the OCI spec
// (server/container_create.go, SetRootPath); containerd's path is relative to its bundle.
func (v verboseInfo) root() string {
	if p := v.RuntimeSpec.Root.Path; path.IsAbs(p) {
		return path.Clean(p)
	}
	return ""
}

func (v verboseInfo) pid() int {
	if v.PID == nil || *v.PID < 0 || *v.PID > maxPID {
		return 0
	}
	return int(*v.PID)
}

// resources holds the limits of a container, as in Container.
type resources struct {
	memory, cpuShares *uint64
	unified           map[string]string
}

// containerResources takes each value from the first of these sources that has it: the status,
// which reflects changes in place; the OCI spec; the config at the creation of the container.
func (v verboseInfo) containerResources(status *runtimev1.LinuxContainerResources) (out resources) {
	spec, config := v.RuntimeSpec.Linux.Resources, v.Config.Linux.Resources
	if config == nil {
		config = &criResources{}
	}
	out.memory = firstSet(status.GetMemoryLimitInBytes(), spec.Memory.Limit, config.MemoryLimit)
	out.cpuShares = firstSet(status.GetCpuShares(), spec.CPU.Shares, config.CPUShares)
	for _, unified := range []map[string]string{status.GetUnified(), spec.Unified, config.Unified} {
		if len(unified) > 0 {
			out.unified = unified
			break
		}
	}
	return out
}

// firstSet returns the first value above 0: 0 is "not specified" in the CRI, and a negative value
// is "no limit" in the OCI spec, or invalid.
func firstSet(from ...int64) *uint64 {
	for _, n := range from {
		if n > 0 {
			if n == math.MaxInt64 { // stands for "no limit"
				return nil
			}
			out := uint64(n)
			return &out
		}
	}
	return nil
}
