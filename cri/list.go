package cri

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSandbox is one attempt at running a pod.
type PodSandbox struct {
	ID              string
	UID             string // of the pod
	Name, Namespace string // of the pod
	Attempt         uint32
	Ready           bool
	CreatedAt       time.Time
	Annotations     map[string]string // of the pod, all of them (kubelet pkg/kubelet/kuberuntime/labels.go)
	// CgroupParent is the pod's cgroup as the runtime was told it: "/kubepods/burstable/pod<uid>" or
	// "kubepods-burstable-pod<uid>.slice". Empty: the runtime did not say.
	CgroupParent string
}

// Container is one container that runs or is about to; dead ones are left out.
type Container struct {
	ID        string
	SandboxID string
	Name      string
	Attempt   uint32
	Running   bool
	// OOMScoreAdj as asked for; nil: the runtime did not say. The kubelet writes QoS class and memory request into it
	// (pkg/kubelet/qos/policy.go).
	OOMScoreAdj *int64
	// MemoryLimit in bytes; nil: none.
	MemoryLimit *uint64
}

// Listing is what the runtime runs, as of Time.
type Listing struct {
	Time       time.Time
	Sandboxes  []PodSandbox
	Containers []Container
}

// Lister lists, and remembers what never changes about a sandbox or container once it was asked for: the verbose statuses
// cost one call each. Use it from one goroutine at a time.
type Lister struct {
	client     *Client
	sandboxes  map[string]string // id to CgroupParent
	containers map[string]containerDetail
}

type containerDetail struct {
	oomScoreAdj *int64
	memoryLimit *uint64
}

// NewLister returns a Lister that remembers nothing yet.
func NewLister(c *Client) *Lister {
	return &Lister{client: c, sandboxes: map[string]string{}, containers: map[string]containerDetail{}}
}

// List asks for all sandboxes and all containers that are not dead, and for the details of the new ones. A sandbox or
// container that goes away between two calls is left out or left without details: that is no error. When ctx ends in the
// middle of the details, what is known so far is returned with them missing, and the next List asks again.
func (l *Lister) List(ctx context.Context) (Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	out := Listing{Time: time.Now()}
	sandboxes, err := l.client.runtime.ListPodSandbox(ctx, &runtimev1.ListPodSandboxRequest{})
	if err != nil {
		return out, l.client.wrap("list pod sandboxes of", err)
	}
	containers, err := l.client.runtime.ListContainers(ctx, &runtimev1.ListContainersRequest{})
	if err != nil {
		return out, l.client.wrap("list containers of", err)
	}
	out.Sandboxes = make([]PodSandbox, 0, len(sandboxes.Items))
	for _, s := range sandboxes.Items {
		m := s.GetMetadata()
		out.Sandboxes = append(out.Sandboxes, PodSandbox{
			ID: s.Id, UID: m.GetUid(), Name: m.GetName(), Namespace: m.GetNamespace(), Attempt: m.GetAttempt(),
			Ready: s.State == runtimev1.PodSandboxState_SANDBOX_READY, CreatedAt: time.Unix(0, s.CreatedAt),
			Annotations: s.Annotations, CgroupParent: l.cgroupParent(ctx, s),
		})
	}
	for _, c := range containers.Containers {
		if c.State == runtimev1.ContainerState_CONTAINER_EXITED {
			continue
		}
		d := l.detail(ctx, c.Id)
		out.Containers = append(out.Containers, Container{
			ID: c.Id, SandboxID: c.PodSandboxId, Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(),
			Running: c.State == runtimev1.ContainerState_CONTAINER_RUNNING, OOMScoreAdj: d.oomScoreAdj, MemoryLimit: d.memoryLimit,
		})
	}
	l.forget(out)
	return out, nil
}

// forget drops the details of what the runtime does not list any more.
func (l *Lister) forget(now Listing) {
	sandboxes := make(map[string]string, len(now.Sandboxes))
	for _, s := range now.Sandboxes {
		if parent, ok := l.sandboxes[s.ID]; ok {
			sandboxes[s.ID] = parent
		}
	}
	containers := make(map[string]containerDetail, len(now.Containers))
	for _, c := range now.Containers {
		if d, ok := l.containers[c.ID]; ok {
			containers[c.ID] = d
		}
	}
	l.sandboxes, l.containers = sandboxes, containers
}

// verboseInfo is the part of the verbose status that containerd and CRI-O share: JSON under the key "info" of the status
// (containerd internal/cri/server/sandbox_status.go and container_status.go).
type verboseInfo struct {
	Config struct {
		Linux struct {
			CgroupParent string `json:"cgroup_parent"` // of a sandbox
			Resources    struct {
				OOMScoreAdj *int64 `json:"oom_score_adj"` // of a container
				MemoryLimit *int64 `json:"memory_limit_in_bytes"`
			} `json:"resources"`
		} `json:"linux"`
	} `json:"config"`
	RuntimeSpec struct {
		Process struct {
			OOMScoreAdj *int64 `json:"oomScoreAdj"`
		} `json:"process"`
		Linux struct {
			CgroupsPath string `json:"cgroupsPath"`
			Resources   struct {
				Memory struct {
					Limit *int64 `json:"limit"`
				} `json:"memory"`
			} `json:"resources"`
		} `json:"linux"`
	} `json:"runtimeSpec"`
}

// parseVerbose takes what it finds: an older or other runtime leaves fields absent, and what it wrote that is not JSON says
// nothing.
func parseVerbose(info map[string]string) (v verboseInfo) {
	if json.Unmarshal([]byte(info["info"]), &v) != nil {
		return verboseInfo{}
	}
	return v
}

func (l *Lister) cgroupParent(ctx context.Context, s *runtimev1.PodSandbox) string {
	if parent, ok := l.sandboxes[s.Id]; ok {
		return parent
	}
	res, err := l.client.runtime.PodSandboxStatus(ctx, &runtimev1.PodSandboxStatusRequest{PodSandboxId: s.Id, Verbose: true})
	if err != nil {
		if errors.Is(l.client.wrap("", err), ErrNotFound) {
			l.sandboxes[s.Id] = ""
		}
		return ""
	}
	v := parseVerbose(res.Info)
	parent := v.Config.Linux.CgroupParent
	if parent == "" {
		parent = parentOfCgroupsPath(v.RuntimeSpec.Linux.CgroupsPath)
	}
	l.sandboxes[s.Id] = parent
	return parent
}

// parentOfCgroupsPath takes the pod's cgroup from its sandbox container's cgroupsPath: "SLICE:PREFIX:ID" with the systemd
// driver, "/PARENT/ID" with cgroupfs (opencontainers/runtime-spec config-linux.md, cgroupsPath).
func parentOfCgroupsPath(p string) string {
	if slice, _, ok := strings.Cut(p, ":"); ok {
		return slice
	}
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return ""
}

func (l *Lister) detail(ctx context.Context, id string) containerDetail {
	if d, ok := l.containers[id]; ok {
		return d
	}
	res, err := l.client.runtime.ContainerStatus(ctx, &runtimev1.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return containerDetail{}
	}
	v := parseVerbose(res.Info)
	d := containerDetail{oomScoreAdj: v.RuntimeSpec.Process.OOMScoreAdj}
	if d.oomScoreAdj == nil {
		d.oomScoreAdj = v.Config.Linux.Resources.OOMScoreAdj
	}
	limit := v.RuntimeSpec.Linux.Resources.Memory.Limit
	if limit == nil {
		limit = v.Config.Linux.Resources.MemoryLimit
	}
	if r := res.GetStatus().GetResources().GetLinux().GetMemoryLimitInBytes(); r > 0 {
		limit = &r
	}
	if limit != nil && *limit > 0 {
		bytes := uint64(*limit)
		d.memoryLimit = &bytes
	}
	l.containers[id] = d
	return d
}
