package vm

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"jettison/e2e/build"
)

// KubeletLogPath is the guest's file with the kubelet's output. StaticPods is its folder of static
// pods.
const (
	KubeletLogPath = "/var/log/kubelet.log"
	StaticPods     = "/etc/kubernetes/manifests/"
)

// kubeletDeadline is long: the kubelet makes a key pair and measures the machine before it answers,
// 15 s under emulation. With a hundred pods running, a new one needs minutes.
const kubeletDeadline = 8 * time.Minute

// kubeletConfig configures a kubelet that runs static pods without an API server. It pulls no
// images and evicts no pods unless a scenario sets that.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: ` + StaticPods + `
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
kubeletCgroups: /kubelet
readOnlyPort: 10255
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
registerNode: false
failSwapOn: false
makeIPTablesUtilChains: false
`

// kubelet builds the kubelet.
func (p *parts) kubelet(ctx context.Context, say Say) error {
	dir, err := build.Kubelet(ctx, say)
	p.tools["kubelet"] = filepath.Join(dir, "kubelet")
	return err
}

// KubeletOptions configure StartKubelet. The zero value works.
type KubeletOptions struct {
	Config string   // more lines of its KubeletConfiguration (evictionHard); no field of kubeletConfig may recur
	Args   []string // further arguments
}

// StartKubelet runs a standalone kubelet on a node booted with Options.Kubelet, in the cgroup
// /kubelet, and waits for its first summary. From then on the kubelet kills every pod that is not
// static: run pods with RunStatic.
func (n *Node) StartKubelet(ctx context.Context, o KubeletOptions) error {
	if n.systemd {
		return errors.New("start the kubelet: not on a node with systemd: its configuration is for the driver cgroupfs")
	}
	if err := n.WriteFile(ctx, "/etc/kubernetes/kubelet.yaml", []byte(kubeletConfig+o.Config)); err != nil {
		return err
	}
	line := "mkdir -p " + StaticPods + " /sys/fs/cgroup/kubelet && echo $$ > /sys/fs/cgroup/kubelet/cgroup.procs && " +
		`exec kubelet --config=/etc/kubernetes/kubelet.yaml --hostname-override=` + nodeName + ` "$@"`
	pid, err := n.Start(ctx, KubeletLogPath, append([]string{"/bin/sh", "-c", line, "sh"}, o.Args...)...) // the shell execs the kubelet
	if err != nil {
		return err
	}
	n.kubeletPID = pid
	err = n.Eventually(ctx, kubeletDeadline, "the kubelet has a summary", func(ctx context.Context) error {
		_, err := n.KubeletSummary(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("start the kubelet: %w\n%s", err, n.KubeletLog(20))
	}
	n.kubelet = true
	return nil
}

// nodeName is the kubelet's name of its node, which it appends to the names of static pods.
const nodeName = "node"

// KubeletLog returns the last lines of the kubelet's log.
func (n *Node) KubeletLog(lines int) string { return n.Tail(KubeletLogPath, lines) }

// KubeletSummary returns the kubelet's /stats/summary: JSON of
// k8s.io/kubelet/pkg/apis/stats/v1alpha1.
func (n *Node) KubeletSummary(ctx context.Context) ([]byte, error) {
	return n.AskKubelet(ctx, "/stats/summary")
}

// AskKubelet returns the kubelet's answer at a path of its read-only port.
func (n *Node) AskKubelet(ctx context.Context, path string) ([]byte, error) {
	res, err := n.Exec(ctx, "/bin/busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:10255"+path)
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("kubelet: %s: %s", path, strings.TrimSpace(string(res.Stderr)))
	}
	return res.Stdout, err
}

// RunStatic has the kubelet run a static pod and waits until all its containers run. The kubelet
// gives it a UID and another name. Its containers write no heartbeat.
func (n *Node) RunStatic(ctx context.Context, object *v1.Pod) (*Pod, error) {
	pod, err := n.writeStatic(ctx, object, path.Dir(path.Clean(StaticPods)))
	if err != nil {
		return nil, err
	}
	// The kubelet reads a file as soon as it exists, so the file is moved there whole.
	if _, err := n.Shell(ctx, "mv "+path.Dir(path.Clean(StaticPods))+"/"+path.Base(pod.manifest)+" "+pod.manifest); err != nil {
		return nil, err
	}
	if err := n.Eventually(ctx, kubeletDeadline, pod.String()+" runs", pod.find); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, n.KubeletLog(20))
	}
	n.pods = append(n.pods, pod)
	return pod, nil
}

// writeStatic writes a static pod's manifest into a folder next to the one that the kubelet
// watches.
func (n *Node) writeStatic(ctx context.Context, object *v1.Pod, folder string) (*Pod, error) {
	object = object.DeepCopy()
	object.TypeMeta.APIVersion, object.TypeMeta.Kind = "v1", "Pod"
	for i := range object.Spec.Containers {
		object.Spec.Containers[i].ImagePullPolicy = v1.PullNever
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return nil, err
	}
	pod := &Pod{Object: object, QOS: qosClass(object), node: n, manifest: StaticPods + object.Name + ".yaml"}
	err = n.WriteFile(ctx, folder+"/"+object.Name+".yaml", text)
	object.Name += "-" + nodeName
	return pod, err
}

// startedTogether is the number of pods that RunManyStatic starts in parallel. If all start at the
// same time, each takes longer than the runtime's call timeout.
const startedTogether = 10

// RunManyStatic works as RunStatic for many pods.
func (n *Node) RunManyStatic(ctx context.Context, objects []*v1.Pod) (pods []*Pod, err error) {
	for batch := range slices.Chunk(objects, startedTogether) {
		const folder = "/etc/kubernetes/waiting"
		first := len(pods)
		for _, object := range batch {
			pod, err := n.writeStatic(ctx, object, folder)
			if err != nil {
				return nil, err
			}
			pods = append(pods, pod)
		}
		if _, err := n.Shell(ctx, "mv "+folder+"/*.yaml "+StaticPods); err != nil {
			return nil, err
		}
		for _, pod := range pods[first:] {
			if err := n.eventually(ctx, time.Second, 2*kubeletDeadline, pod.String()+" runs", pod.find); err != nil {
				return nil, fmt.Errorf("%w\n%s", err, n.KubeletLog(20))
			}
		}
		n.say("%d of %d pods run", len(pods), len(objects))
	}
	n.pods = append(n.pods, pods...)
	return pods, nil
}

// RestartKubelet kills the kubelet every `every`, starts it again after `down`, for the duration
// `during`, and leaves it running.
func (n *Node) RestartKubelet(ctx context.Context, every, down, during time.Duration) error {
	line := fmt.Sprintf(`now() { cut -d. -f1 /proc/uptime; }
end=$(($(now) + %d)); pid=%d
while [ $(now) -lt $end ]; do
	kill -9 $pid; sleep %d
	(echo 0 > /sys/fs/cgroup/kubelet/cgroup.procs; exec kubelet --config=/etc/kubernetes/kubelet.yaml --hostname-override=%s) >> %s 2>&1 &
	pid=$!; sleep %d
done
echo $pid > /run/kubelet.pid; wait`,
		int(during.Seconds()), n.kubeletPID, int(down.Seconds()), nodeName, KubeletLogPath, int((every - down).Seconds()))
	if _, err := n.Start(ctx, "/var/log/restarts.log", "/bin/sh", "-c", line); err != nil {
		return err
	}
	return n.Eventually(ctx, during+2*every+callDeadline, "the kubelet was restarted for long enough", func(ctx context.Context) error {
		res, err := n.Exec(ctx, "/bin/cat", "/run/kubelet.pid")
		if err != nil {
			return err
		}
		_, err = fmt.Sscan(string(res.Stdout), &n.kubeletPID)
		return err
	})
}

// KubeletPID returns the kubelet's process id in the guest.
func (n *Node) KubeletPID() int { return n.kubeletPID }

// StopKubelet kills the kubelet and waits until it has ended. Its pods keep running.
func (n *Node) StopKubelet(ctx context.Context) error {
	if _, err := n.Shell(ctx, fmt.Sprintf("kill -9 %d", n.kubeletPID)); err != nil {
		return err
	}
	return n.Eventually(ctx, callDeadline, "the kubelet is gone", func(ctx context.Context) error {
		res, err := n.Exec(ctx, "/bin/kill", "-0", fmt.Sprint(n.kubeletPID))
		if err == nil && res.Code == 0 {
			err = errors.New("the kubelet still runs")
		}
		return err
	})
}

// find reads a static pod's sandbox and containers from the runtime.
func (p *Pod) find(ctx context.Context) error {
	labels := map[string]string{"io.kubernetes.pod.name": p.Object.Name, "io.kubernetes.pod.namespace": p.Object.Namespace}
	ready := &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}
	sandboxes, err := p.node.client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: labels, State: ready}})
	if err != nil {
		return err
	}
	if len(sandboxes.Items) != 1 {
		return fmt.Errorf("pod has %d sandboxes", len(sandboxes.Items))
	}
	p.Sandbox = sandboxes.Items[0].Id
	p.Object.UID = types.UID(sandboxes.Items[0].Metadata.Uid)
	p.Cgroup = strings.TrimPrefix(cgroupPath(p.QOS, p.Object.UID, p.node.systemd), "/")
	running := &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}
	containers, err := p.node.client.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: p.Sandbox, State: running}})
	if err != nil {
		return err
	}
	p.Containers = nil
	for _, c := range p.Object.Spec.Containers {
		for _, found := range containers.Containers {
			if found.Metadata.Name == c.Name {
				p.Containers = append(p.Containers, found.Id)
			}
		}
	}
	if len(p.Containers) != len(p.Object.Spec.Containers) {
		return errors.New("not all containers of the pod run")
	}
	return nil
}

// removeStatic removes a static pod's manifest from the kubelet and waits until the pod has no
// process left.
func (p *Pod) removeStatic(ctx context.Context) error {
	if _, err := p.node.Shell(ctx, "rm "+p.manifest); err != nil {
		return err
	}
	p.Expected = Dies
	return p.WaitDead(ctx)
}
