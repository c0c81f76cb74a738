package cri

import (
	"cmp"
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSandbox is one attempt to run a pod. Listings share its maps and pointers: never write through
// them.
type PodSandbox struct {
	ID              string
	UID             string // of the pod
	Name, Namespace string // of the pod
	Attempt         uint32
	Ready           bool
	CreatedAt       time.Time // zero: unknown
	// relevant annotations of the pod: kubernetes.io/config.* and jettison/*
	Annotations    map[string]string
	RuntimeHandler string // of the RuntimeClass; empty: the default handler
	// kind of the pod's controller, guessed from its labels; empty: unknown, or the status was not
	// requested
	Owner string

	// Refused: the verbose status exceeds the limit of this client. The following fields are absent.
	Refused bool

	// The other fields come from the verbose status in a runtime-specific form and may be absent.

	// CgroupParent is the pod's cgroup as configured in the runtime: "/kubepods/burstable/pod<uid>"
	// or "kubepods-burstable-pod<uid>.slice". Empty: not reported.
	CgroupParent string
	// Resources of the whole pod that the kubelet sent to the runtime at its start
	// (pkg/kubelet/kuberuntime kuberuntime_sandbox_linux.go applySandboxResources), without the
	// overhead. CPUShares is the weight of the pod's CPU request, in the unit of Container.CPUShares.
	// MemoryLimit is the sum of the limits of all containers with a limit, in bytes. nil: not sent,
	// or no value.
	CPUShares   *uint64
	MemoryLimit *uint64
	// Overhead is the amount of memory, in bytes, that the RuntimeClass adds to the pod's request.
	// nil: not sent.
	Overhead *uint64
	// PID of the sandbox's own process (pause), in the node's PID namespace. 0: unknown, no process
	// (CRI-O's drop_infra_ctr), or not Ready. The PID may have been reused.
	PID int
}

func sandboxOf(s *runtimev1.PodSandbox) PodSandbox {
	m := s.GetMetadata()
	return PodSandbox{
		ID: s.GetId(), UID: m.GetUid(), Name: m.GetName(), Namespace: m.GetNamespace(),
		Attempt:     m.GetAttempt(),
		Ready:       s.GetState() == runtimev1.PodSandboxState_SANDBOX_READY,
		CreatedAt:   timeAt(s.GetCreatedAt()),
		Annotations: s.GetAnnotations(), RuntimeHandler: s.GetRuntimeHandler(),
	}
}

// sandboxStatus requests one status of at most statusLimit bytes.
func (c *Client) sandboxStatus(ctx context.Context, id string,
	verbose bool) (*runtimev1.PodSandboxStatusResponse, error) {
	defer c.link.turn.wait(ctx, patienceForTurn)()
	return c.runtime.PodSandboxStatus(ctx, &runtimev1.PodSandboxStatusRequest{PodSandboxId: id,
		Verbose: verbose},
		grpc.MaxCallRecvMsgSize(statusLimit(verbose)))
}

// sandboxDetail holds the fields that a status adds to a list.
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
	overhead, fromCRIO := v.RuntimeSpec.Annotations.decode(res.GetStatus().GetAnnotations())
	if r := cmp.Or(v.Config.Linux.Resources, fromCRIO); r != nil {
		d.resources.memory, d.resources.cpuShares = firstSet(r.MemoryLimit), firstSet(r.CPUShares)
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

// Labels that controllers set on their pods (k8s.io/api/apps/v1, batch/v1;
// pkg/controller/daemon, replicaset).
const (
	labelTemplateHash = "pod-template-hash"
	labelRevisionHash = "controller-revision-hash"
	labelStatefulSet  = "statefulset.kubernetes.io/pod-name"
	labelJob          = "batch.kubernetes.io/job-name"
)

// ownerOf guesses the kind of a pod's controller. Any client may write labels, so the result is
// only a guess.
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

// parentOfCgroupsPath returns the pod's cgroup from its sandbox container's cgroupsPath:
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
