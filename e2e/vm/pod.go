package vm

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/e2e/guestapi"
)

// Pod is a pod that the harness runs on a node in place of the kubelet.
type Pod struct {
	Object     *v1.Pod
	QOS        v1.PodQOSClass
	Cgroup     string      // of the pod, below /sys/fs/cgroup
	Outside    []string    // cgroups of the sandbox and then the containers, with a Layout other than BelowPods
	Sandbox    string      // CRI id
	Containers []string    // CRI ids, in the order of the spec
	Expected   Expectation // the state that Audit requires
	// Took is the time in which the runtime started the pod: its sandbox and all containers in
	// sequence, including the calls' round trips.
	Took time.Duration

	node     *Node
	attempt  uint32 // of the sandbox
	restarts uint32 // number of container restarts
	manifest string // of a static pod, which the kubelet runs; empty: the harness runs it
}

// Expectation is the state of a pod that a scenario expects and Audit checks.
type Expectation int

// Expectations of pods.
const (
	Lives Expectation = iota
	Dies              // no process of it may be left
	Any               // a container of it may have ended, for example by the kernel's OOM killer
)

// NewPod makes a pod object with one container of the workload image. behaviour is the workload's
// command line. Requests and limits are memory; an empty string omits one.
func NewPod(name, request, limit string, behaviour string) *v1.Pod {
	c := v1.Container{Name: "main", Image: ImageWorkload, Args: strings.Fields(behaviour)}
	set := func(list *v1.ResourceList, quantity string) {
		if quantity != "" {
			*list = v1.ResourceList{v1.ResourceMemory: resource.MustParse(quantity)}
		}
	}
	set(&c.Resources.Requests, request)
	set(&c.Resources.Limits, limit)
	if request != "" && request == limit { // Guaranteed needs CPU too
		cpu := resource.MustParse("200m")
		c.Resources.Requests[v1.ResourceCPU], c.Resources.Limits[v1.ResourceCPU] = cpu, cpu
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{"kubernetes.io/config.source": "api"}},
		Spec:       v1.PodSpec{HostNetwork: true, Containers: []v1.Container{c}},
	}
}

// qosClass follows the kubelet's rules for regular containers (pkg/apis/core/v1/helper/qos).
func qosClass(p *v1.Pod) v1.PodQOSClass {
	guaranteed, any := true, false
	for _, c := range p.Spec.Containers {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, hasRequest := c.Resources.Requests[name]
			limit, hasLimit := c.Resources.Limits[name]
			any = any || hasRequest || hasLimit
			guaranteed = guaranteed && hasLimit && (!hasRequest || request.Cmp(limit) == 0)
		}
	}
	switch {
	case !any:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// cgroupPath returns a kubelet's name of a pod's cgroup below /sys/fs/cgroup. systemd selects that
// cgroup driver.
func cgroupPath(qos v1.PodQOSClass, uid types.UID, systemd bool) string {
	if systemd {
		dir, prefix := "/kubepods.slice/", "kubepods-"
		if qos != v1.PodQOSGuaranteed {
			prefix += strings.ToLower(string(qos)) + "-"
			dir += strings.TrimSuffix(prefix, "-") + ".slice/"
		}
		return dir + prefix + "pod" + strings.ReplaceAll(string(uid), "-", "_") + ".slice"
	}
	if qos == v1.PodQOSGuaranteed {
		return "/kubepods/pod" + string(uid)
	}
	return "/kubepods/" + strings.ToLower(string(qos)) + "/pod" + string(uid)
}

// oomScoreAdj follows kubelet v1.37 pkg/kubelet/qos/policy.go.
func (n *Node) oomScoreAdj(p *v1.Pod, qos v1.PodQOSClass, c v1.Container) int64 {
	request := c.Resources.Requests.Memory().Value()
	switch {
	case p.Spec.PriorityClassName == "system-node-critical" || qos == v1.PodQOSGuaranteed:
		return -997
	case qos == v1.PodQOSBestEffort:
		return 1000
	}
	return min(max(1000-1000*request/n.capacity, 3), 999)
}

// Run runs a pod: its cgroup first, then the sandbox, then the containers. Each container of the
// workload image also writes a heartbeat, which lets Check detect a container that is listed as
// running but dead.
func (n *Node) Run(ctx context.Context, object *v1.Pod) (*Pod, error) {
	object = object.DeepCopy()
	if object.UID == "" {
		object.UID = types.UID(uuid.NewString())
	}
	pod := &Pod{Object: object, QOS: qosClass(object), node: n}
	var err error
	if pod.attempt, err = n.nextAttempt(ctx, object.UID); err != nil {
		return nil, fmt.Errorf("run pod %s: %w", pod, err)
	}
	pod.Cgroup = strings.TrimPrefix(cgroupPath(pod.QOS, object.UID, n.systemd), "/")
	if err := pod.run(ctx); err != nil {
		if pod.Sandbox != "" { // a leftover sandbox would block the next attempt
			err = errors.Join(err, pod.Remove(ctx))
		}
		return nil, fmt.Errorf("run pod %s: %w", pod, err)
	}
	n.pods = append(n.pods, pod)
	return pod, nil
}

// nextAttempt returns the number of a pod's next sandbox: one more than the highest that the
// runtime has, as a kubelet counts (kubelet v1.37 pkg/kubelet/kuberuntime/util/util.go
// PodSandboxChanged). The highest may be a sandbox that was never reported: one rejected at its
// start whose cleanup failed stays and keeps its name (containerd v2.4
// internal/cri/server/sandbox_run.go cleanupErr).
func (n *Node) nextAttempt(ctx context.Context, uid types.UID) (attempt uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	list, err := n.client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(uid)}},
	})
	for _, s := range list.GetItems() {
		attempt = max(attempt, s.GetMetadata().GetAttempt()+1)
	}
	return attempt, err
}

func (p *Pod) String() string { return p.Object.Namespace + "/" + p.Object.Name }

func (p *Pod) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, podDeadline)
	defer cancel()
	n, o := p.node, p.Object
	if _, err := n.Shell(ctx, "mkdir -p "+p.logDir()+" "+p.beatDir()+p.makeCgroup()); err != nil {
		return err
	}
	if err := p.makeVolumes(ctx); err != nil {
		return err
	}
	config := p.sandboxConfig()
	began := time.Now()
	sandbox, err := n.client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return err
	}
	p.Took = time.Since(began)
	p.Sandbox = sandbox.PodSandboxId
	if err := p.findOutside(ctx, p.Sandbox); err != nil {
		return err
	}
	if err := p.limit(ctx); err != nil {
		return err
	}
	for _, c := range o.Spec.Containers {
		if err := p.AddContainer(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// AddContainer creates and starts a container in the pod's sandbox.
func (p *Pod) AddContainer(ctx context.Context, c v1.Container) error {
	id, err := p.startContainer(ctx, p.container(c))
	if err == nil {
		p.Containers = append(p.Containers, id)
	}
	return err
}

// RestartContainer starts the next attempt of an ended container in the pod's sandbox, as a kubelet
// does, and replaces its ID in Containers. index is that of the container in the spec.
func (p *Pod) RestartContainer(ctx context.Context, index int) error {
	p.restarts++
	config := p.container(p.Object.Spec.Containers[index])
	config.Metadata.Attempt += p.restarts
	config.LogPath = fmt.Sprintf("%s/%d.log", config.Metadata.Name, config.Metadata.Attempt)
	id, err := p.startContainer(ctx, config)
	if err == nil {
		p.Containers[index] = id
	}
	return err
}

func (p *Pod) startContainer(ctx context.Context, config *cri.ContainerConfig) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, podDeadline)
	defer cancel()
	// CRI-O expects the log's folder, as a kubelet makes it; containerd makes it if it is missing.
	if _, err := p.node.Shell(ctx, "mkdir -p "+path.Dir(p.LogPath(config.Metadata.Name))); err != nil {
		return "", err
	}
	began, runtime := time.Now(), p.node.client
	created, err := runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: p.Sandbox, SandboxConfig: p.sandboxConfig(), Config: config,
	})
	if err != nil {
		return "", err
	}
	if _, err := runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
		return "", err
	}
	p.Took += time.Since(began)
	return created.ContainerId, p.findOutside(ctx, created.ContainerId)
}

func (p *Pod) sandboxConfig() *cri.PodSandboxConfig {
	o := p.Object
	config := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: o.Name, Namespace: o.Namespace, Uid: string(o.UID), Attempt: p.attempt},
		LogDirectory: p.logDir(), Annotations: o.Annotations,
		Labels: map[string]string{
			"io.kubernetes.pod.name": o.Name, "io.kubernetes.pod.namespace": o.Namespace, "io.kubernetes.pod.uid": string(o.UID),
		},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    p.cgroupParent(),
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: p.namespaces(), Seccomp: runtimeDefault, Privileged: p.privileged()},
		},
	}
	for k, v := range o.Labels {
		config.Labels[k] = v
	}
	if !o.Spec.HostNetwork { // the host's network comes with the host's name
		config.Hostname = o.Name
	}
	return config
}

// cgroupParent returns the cgroup parent for the runtime: with the systemd driver the slice's name,
// else its path.
func (p *Pod) cgroupParent() string {
	if p.node.layout == NoPodCgroups {
		return ""
	}
	if p.node.systemd {
		return path.Base(p.Cgroup)
	}
	return "/" + p.Cgroup
}

// makeCgroup returns a shell line that makes the pod's cgroup, with the controllers enabled on
// every level.
func (p *Pod) makeCgroup() string {
	switch {
	case p.node.layout == NoPodCgroups:
		return ""
	case p.node.layout == SplitDrivers: // as the kubelet does: the runtime does not make them
		return " && systemctl start " + path.Base(p.Cgroup)
	case p.node.systemd:
		return "" // systemd makes the slices
	}
	line, dir := "", "/sys/fs/cgroup"
	for name := range strings.SplitSeq(p.Cgroup, "/") {
		line += " && echo '+cpu +cpuset +io +memory +pids' > " + dir + "/cgroup.subtree_control"
		dir += "/" + name
		line += " && mkdir -p " + dir
	}
	return line
}

// limit sets the pod cgroup's pids.max, and its memory.max where every container has a limit, as a kubelet does.
func (p *Pod) limit(ctx context.Context) error {
	if p.node.layout == NoPodCgroups {
		return nil
	}
	if p.node.podPids > 0 {
		if _, err := p.node.Shell(ctx, fmt.Sprintf("echo %d > /sys/fs/cgroup/%s/pids.max", p.node.podPids, p.Cgroup)); err != nil {
			return err
		}
	}
	var sum int64
	for _, c := range p.Object.Spec.Containers {
		limit := c.Resources.Limits.Memory().Value()
		if limit == 0 {
			return nil
		}
		sum += limit
	}
	_, err := p.node.Shell(ctx, fmt.Sprintf("echo %d > /sys/fs/cgroup/%s/memory.max", sum, p.Cgroup))
	return err
}

// imageSpec names an image as a kubelet does. CRI-O rejects a container without the second field.
func imageSpec(name string) *cri.ImageSpec {
	return &cri.ImageSpec{Image: name, UserSpecifiedImage: name}
}

var runtimeDefault = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}

func (p *Pod) logDir() string {
	return fmt.Sprintf("/var/log/pods/%s_%s_%s", p.Object.Namespace, p.Object.Name, p.Object.UID)
}
func (p *Pod) beatDir() string { return "/run/beats/" + string(p.Object.UID) }

func (p *Pod) namespaces() *cri.NamespaceOption {
	mode := func(host bool, other cri.NamespaceMode) cri.NamespaceMode {
		if host {
			return cri.NamespaceMode_NODE
		}
		return other
	}
	s := p.Object.Spec
	return &cri.NamespaceOption{
		Network: mode(s.HostNetwork, cri.NamespaceMode_POD),
		Pid:     mode(s.HostPID, cri.NamespaceMode_CONTAINER),
		Ipc:     mode(s.HostIPC, cri.NamespaceMode_POD),
	}
}

func (p *Pod) privileged() bool {
	for _, c := range p.Object.Spec.Containers {
		if privileged(c) {
			return true
		}
	}
	return false
}

func privileged(c v1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

func (p *Pod) container(c v1.Container) *cri.ContainerConfig {
	args := c.Args
	mounts := p.mounts(c)
	if c.Image == ImageWorkload {
		args = append([]string{"heartbeat", "/beat/" + c.Name, "+"}, args...)
		mounts = append(mounts, &cri.Mount{ContainerPath: "/beat", HostPath: p.beatDir()})
	}
	shares := int64(2)
	if cpu := c.Resources.Requests.Cpu().MilliValue(); cpu > 0 {
		shares = cpu * 1024 / 1000
	}
	security := &cri.LinuxContainerSecurityContext{NamespaceOptions: p.namespaces(), Privileged: privileged(c), Seccomp: runtimeDefault}
	if security.Privileged {
		security.Seccomp = nil
	}
	restrict(security, c.SecurityContext)
	var env []*cri.KeyValue
	for _, e := range c.Env {
		if e.ValueFrom != nil { // the one supported field
			e.Value = nodeName
		}
		env = append(env, &cri.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: c.Name, Attempt: p.attempt},
		Image:    imageSpec(c.Image),
		Command:  c.Command, Args: args, Envs: env, Mounts: mounts, LogPath: c.Name + "/0.log",
		Labels: map[string]string{
			"io.kubernetes.container.name": c.Name, "io.kubernetes.pod.name": p.Object.Name,
			"io.kubernetes.pod.namespace": p.Object.Namespace, "io.kubernetes.pod.uid": string(p.Object.UID),
		},
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{
				CpuPeriod: 100000, CpuQuota: c.Resources.Limits.Cpu().MilliValue() * 100, CpuShares: shares,
				MemoryLimitInBytes: c.Resources.Limits.Memory().Value(), OomScoreAdj: p.node.oomScoreAdj(p.Object, p.QOS, c),
			},
			SecurityContext: security,
		},
	}
}

// Paths of /proc and /sys that a kubelet hides from a container that is not privileged, and those
// it makes read-only (pkg/securitycontext/util.go defaultMaskedPaths, defaultReadonlyPaths,
// v1.37.2).
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// restrict applies the capabilities and read-only settings of a container's object. A container
// without them is unchanged. The node has no AppArmor (containerdConfig).
func restrict(to *cri.LinuxContainerSecurityContext, by *v1.SecurityContext) {
	if by == nil {
		return
	}
	to.ReadonlyRootfs = by.ReadOnlyRootFilesystem != nil && *by.ReadOnlyRootFilesystem
	if to.Privileged {
		return
	}
	to.MaskedPaths, to.ReadonlyPaths = maskedPaths, readonlyPaths
	if by.Capabilities == nil {
		return
	}
	to.Capabilities = &cri.Capability{}
	for _, c := range by.Capabilities.Add {
		to.Capabilities.AddCapabilities = append(to.Capabilities.AddCapabilities, string(c))
	}
	for _, c := range by.Capabilities.Drop {
		to.Capabilities.DropCapabilities = append(to.Capabilities.DropCapabilities, string(c))
	}
}

// LogPath returns the guest's path of the log of a container of the pod.
func (p *Pod) LogPath(container string) string { return path.Join(p.logDir(), container, "0.log") }

// ContainerCgroup returns the cgroup of a container of the pod, below /sys/fs/cgroup.
func (p *Pod) ContainerCgroup(id string) string {
	crio := p.node.Runtime == guestapi.CRIO
	switch {
	case crio && p.node.systemd:
		return p.Cgroup + "/crio-" + id + ".scope"
	case crio:
		return p.Cgroup + "/crio-" + id
	case p.node.systemd:
		return p.Cgroup + "/cri-containerd-" + id + ".scope"
	}
	return p.Cgroup + "/" + id
}

// States reads the state of each container from the runtime.
func (p *Pod) States(ctx context.Context) ([]*cri.ContainerStatus, error) {
	var out []*cri.ContainerStatus
	for _, id := range p.Containers {
		res, err := p.node.client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			return nil, err
		}
		out = append(out, res.Status)
	}
	return out, nil
}

// Ended returns nil once every container of the pod has exited with a code.
func (p *Pod) Ended(ctx context.Context, code int32) error {
	states, err := p.States(ctx)
	if err != nil {
		return err
	}
	for _, s := range states {
		if s.State != cri.ContainerState_CONTAINER_EXITED || s.ExitCode != code {
			return fmt.Errorf("pod %s: container %s is %v, exit code %d", p, s.Metadata.Name, s.State, s.ExitCode)
		}
	}
	return nil
}

// Populated reads from cgroup.events whether the pod has any process, in its cgroup and outside. A
// removed cgroup has no process.
func (p *Pod) Populated(ctx context.Context) (bool, error) {
	line := "cd /sys/fs/cgroup && cat"
	for _, dir := range append([]string{p.Cgroup}, p.Outside...) {
		line += " '" + dir + "/cgroup.events'"
	}
	text, err := p.node.Shell(ctx, line+" 2>/dev/null || echo gone")
	return strings.Contains(text, "populated 1"), err
}

// Check returns the reason why the pod does not live, or nil. A pod lives if each container runs
// for the runtime, has processes for the kernel, and its heartbeat advances.
func (p *Pod) Check(ctx context.Context) error {
	states, err := p.States(ctx)
	if err != nil {
		return fmt.Errorf("pod %s: %w", p, err)
	}
	for _, s := range states {
		if s.State != cri.ContainerState_CONTAINER_RUNNING {
			return fmt.Errorf("pod %s: container %s is %v, exit code %d, %s", p, s.Metadata.Name, s.State, s.ExitCode, s.Reason)
		}
	}
	if alive, err := p.Populated(ctx); err != nil || !alive {
		return fmt.Errorf("pod %s: its cgroups are empty (%v)", p, err)
	}
	for _, c := range p.Object.Spec.Containers {
		if c.Image != ImageWorkload || p.manifest != "" {
			continue
		}
		first, err := p.beat(ctx, c.Name)
		if err != nil {
			return err
		}
		if err := p.node.Eventually(ctx, callDeadline, "the heart of "+p.String()+" beats", func(ctx context.Context) error {
			now, err := p.beat(ctx, c.Name)
			if err == nil && now == first {
				err = fmt.Errorf("heartbeat stays at %d", now)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pod) beat(ctx context.Context, container string) (int, error) {
	text, err := p.node.ReadFile(ctx, p.beatDir()+"/"+container, 0)
	if err != nil {
		return 0, fmt.Errorf("pod %s: heartbeat: %w", p, err)
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// WaitDead waits until the kernel reports no process of the pod, and the runtime reports its
// sandbox as not ready or removed.
func (p *Pod) WaitDead(ctx context.Context) error {
	return p.node.Eventually(ctx, callDeadline*2, p.String()+" is dead", func(ctx context.Context) error {
		alive, err := p.Populated(ctx)
		if err != nil {
			return err
		}
		if alive {
			return errors.New("the pod's cgroup has processes")
		}
		res, err := p.node.client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.Sandbox})
		if status.Code(err) == codes.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		if res.Status.State != cri.PodSandboxState_SANDBOX_NOTREADY {
			return errors.New("the pod's sandbox is still ready")
		}
		return nil
	})
}

// Remove ends the pod and removes it, as a kubelet does with a deleted one. Audit no longer checks
// it.
func (p *Pod) Remove(ctx context.Context) error {
	if p.manifest != "" {
		return p.removeStatic(ctx)
	}
	// After a kill from outside, containerd may report a container as running for a while and
	// reject its removal, and CRI-O may wait for the container's end without limit.
	if err := p.node.Eventually(ctx, callDeadline, p.String()+" is removed", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, callDeadline/2)
		defer cancel()
		if _, err := p.node.client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.Sandbox}); err != nil {
			return err
		}
		_, err := p.node.client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.Sandbox})
		return err
	}); err != nil {
		return err
	}
	p.Expected = Dies
	if err := p.removeVolumes(ctx); err != nil {
		return err
	}
	_, err := p.node.Shell(ctx, "rmdir /sys/fs/cgroup/"+p.Cgroup+" 2>/dev/null; true")
	return err
}

// Audit returns the reasons that fail a run: a pod that died unexpectedly, one that was expected to
// die and lives, and a kernel OOM kill unless oomMeant.
func (n *Node) Audit(ctx context.Context, oomMeant bool) (faults []error) {
	for _, p := range n.pods {
		switch p.Expected {
		case Lives:
			if err := p.Check(ctx); err != nil {
				faults = append(faults, err)
			}
		case Dies:
			if alive, err := p.Populated(ctx); alive || err != nil {
				faults = append(faults, fmt.Errorf("pod %s was expected to die and has processes (%v)", p, err))
			}
		}
	}
	kills, err := n.OOMKills(ctx)
	if err != nil {
		faults = append(faults, err)
	}
	if !oomMeant {
		for _, line := range kills {
			faults = append(faults, fmt.Errorf("the kernel's OOM killer fired: %s", line))
		}
	}
	return faults
}
