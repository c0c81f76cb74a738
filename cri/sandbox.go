package cri

import (
	"cmp"
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSandbox is one attempt at running a pod. Its maps and pointers are shared between listings:
// never write through them.
type PodSandbox struct {
	ID              string
	UID             string // of the pod
	Name, Namespace string // of the pod
	Attempt         uint32
	Ready           bool
	CreatedAt       time.Time // zero: unknown
	// of the pod, those that decide: kubernetes.io/config.* and jettison/*
	Annotations    map[string]string
	RuntimeHandler string // of the RuntimeClass; empty: the default one
	// kind of what has made the pod, by its labels; empty: they do not tell, or its status was not
	// asked for
	Owner string

	// Refused: its verbose status is larger than this client takes. What follows is absent.
	Refused bool

	// The rest comes from the verbose status, in shapes of the runtime's own, and may be absent.

	// CgroupParent is the pod's cgroup as the runtime was told it: "/kubepods/burstable/pod<uid>" or
	// "kubepods-burstable-pod<uid>.slice". Empty: the runtime did not say.
	CgroupParent string
	// What the kubelet told the runtime of the pod as a whole when it was started
	// (pkg/kubelet/kuberuntime kuberuntime_sandbox_linux.go applySandboxResources), without the
	// overhead: CPUShares of its request, relative as a container's; MemoryLimit the limits of all
	// containers that have one, in bytes. nil: it was not told, or there is none.
	CPUShares   *uint64
	MemoryLimit *uint64
	// Overhead is what the RuntimeClass adds to the pod's request for memory, in bytes. nil: it was
	// not told.
	Overhead *uint64
	// PID of the sandbox's own process on the node (pause). 0: unknown, none (CRI-O's drop_infra_ctr),
	// or not Ready. It may have been given to another process since.
	PID int
}

func sandboxOf(s *runtimev1.PodSandbox) PodSandbox {
	m := s.GetMetadata()
	return PodSandbox{
		ID: s.GetId(), UID: m.GetUid(), Name: m.GetName(), Namespace: m.GetNamespace(),
		Attempt: m.GetAttempt(),
		Ready:   s.GetState() == runtimev1.PodSandboxState_SANDBOX_READY, CreatedAt: at(s.GetCreatedAt()),
		Annotations: s.GetAnnotations(), RuntimeHandler: s.GetRuntimeHandler(),
	}
}

// sandboxStatus asks for one status, which may have no more than statusLimit.
func (c *Client) sandboxStatus(ctx context.Context, id string,
	verbose bool) (*runtimev1.PodSandboxStatusResponse, error) {
	defer c.link.turn.wait(ctx, patienceForTurn)()
	return c.runtime.PodSandboxStatus(ctx, &runtimev1.PodSandboxStatusRequest{PodSandboxId: id,
		Verbose: verbose},
		grpc.MaxCallRecvMsgSize(statusLimit(verbose)))
}

// sandboxDetail is what the verbose status adds to a list.
type sandboxDetail struct {
	cgroupParent string
	pid          int
	resources    resources
	overhead     *uint64 // of memory
	owner        string
}

func sandboxDetailOf(res *runtimev1.PodSandboxStatusResponse) sandboxDetail {
	v := parseVerbose(res.GetInfo())
	d := sandboxDetail{cgroupParent: v.Config.Linux.CgroupParent, pid: v.pid(),
		owner: ownerOf(res.GetStatus().GetLabels())}
	overhead, made := v.RuntimeSpec.Annotations.of(res.GetStatus().GetAnnotations())
	if r := cmp.Or(v.Config.Linux.Resources, made); r != nil {
		d.resources.memory, d.resources.cpuShares = size(r.MemoryLimit), size(r.CPUShares)
	}
	if o := cmp.Or(v.Config.Linux.Overhead, overhead); o != nil && o.MemoryLimit >= 0 {
		bytes := uint64(o.MemoryLimit)
		d.overhead = &bytes
	}
	if d.cgroupParent == "" {
		d.cgroupParent = parentOfCgroupsPath(v.RuntimeSpec.Linux.CgroupsPath)
	}
	return d
}

// Labels that controllers give the pods that they make (k8s.io/api/apps/v1, batch/v1;
// pkg/controller/daemon, replicaset).
const (
	labelTemplateHash = "pod-template-hash"
	labelRevisionHash = "controller-revision-hash"
	labelStatefulSet  = "statefulset.kubernetes.io/pod-name"
	labelJob          = "batch.kubernetes.io/job-name"
)

// ownerOf guesses who makes a pod again. Labels are anybody's to write: it is no proof.
func ownerOf(labels map[string]string) string {
	has := func(label string) bool { _, ok := labels[label]; return ok }
	switch {
	case has(labelStatefulSet):
		return "StatefulSet"
	case has(labelRevisionHash):
		return "DaemonSet"
	case has(labelTemplateHash):
		return "ReplicaSet"
	case has(labelJob):
		return "Job"
	}
	return ""
}

func (d sandboxDetail) fill(s *PodSandbox) {
	s.CgroupParent, s.Owner = d.cgroupParent, d.owner
	s.CPUShares, s.MemoryLimit, s.Overhead = d.resources.cpuShares, d.resources.memory, d.overhead
	if s.Ready {
		s.PID = d.pid
	}
}

// parentOfCgroupsPath takes the pod's cgroup from its sandbox container's cgroupsPath:
// "SLICE:PREFIX:ID" with the systemd driver, "/PARENT/ID" with cgroupfs
// (opencontainers/runtime-spec config-linux.md, cgroupsPath).
func parentOfCgroupsPath(p string) string {
	if slice, _, ok := strings.Cut(p, ":"); ok {
		return slice
	}
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return ""
}
