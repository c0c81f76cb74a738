package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// rendered has all objects that an overlay renders.
type rendered struct {
	set    appsv1.DaemonSet
	config v1.ConfigMap
}

func (r *rendered) pod() *v1.PodSpec         { return &r.set.Spec.Template.Spec }
func (r *rendered) container() *v1.Container { return &r.set.Spec.Template.Spec.Containers[0] }

// decode renders a folder and decodes it strictly: an unknown or duplicate field is an error.
func decode(t *testing.T, fs filesys.FileSystem, folder string) *rendered {
	t.Helper()
	text, err := render(fs, folder)
	if err != nil {
		t.Fatal(err)
	}
	out, seen := &rendered{}, map[string]int{}
	for one := range strings.SplitSeq(string(text), "\n---\n") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(one), &kind); err != nil {
			t.Fatal(err)
		}
		seen[kind.Kind]++
		var into any = &out.set
		if kind.Kind == "ConfigMap" {
			into = &out.config
		}
		if err := yaml.UnmarshalStrict([]byte(one), into); err != nil {
			t.Errorf("%s: strict decoding of rendered %s: %v", folder, kind.Kind, err)
		}
	}
	if want := map[string]int{"DaemonSet": 1, "ConfigMap": 1}; !maps.Equal(seen, want) {
		t.Fatalf("objects rendered from %s = %v, want %v", folder, seen, want)
	}
	if n := len(out.pod().Containers); n != 1 || len(out.pod().InitContainers) != 0 {
		t.Fatalf("%s: pod has %d containers, want only the agent's", folder, n)
	}
	return out
}

// overlays are the folders that a user applies, each with the mount point of the runtime's folder
// of the node.
var overlays = map[string]struct {
	host   string
	mounts []string
}{
	"containerd":      {"/run/containerd", []string{"/run/containerd", "/var/run/containerd"}}, // kubeadm's kubelets use the latter
	"crio":            {"/run/crio", []string{"/run/crio", "/var/run/crio"}},
	"k3s":             {"/run/k3s/containerd", []string{"/run/containerd", "/run/k3s/containerd"}}, // rke2's kubelet uses the latter
	"least-privilege": {"/run/containerd", []string{"/run/containerd", "/var/run/containerd"}},
}

func overlay(t *testing.T, name string) *rendered {
	t.Helper()
	return decode(t, filesys.MakeFsOnDisk(), filepath.Join("..", "overlays", name))
}

func TestEveryOverlayIsListed(t *testing.T) {
	folders, err := os.ReadDir("../overlays")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if _, ok := overlays[f.Name()]; !ok && !slices.Contains(withBridges, f.Name()) {
			t.Errorf("overlay %s has no test", f.Name())
		}
	}
}

func TestOverlays(t *testing.T) {
	for name, want := range overlays {
		t.Run(name, func(t *testing.T) {
			r := overlay(t, name)
			s, c := r.pod(), r.container()
			for what, ok := range map[string]bool{
				"namespace":                 r.set.Namespace == "kube-system" && r.config.Namespace == "kube-system",
				"critical":                  s.PriorityClassName == "system-node-critical" && s.Priority == nil,
				"no token":                  s.AutomountServiceAccountToken != nil && !*s.AutomountServiceAccountToken && s.ServiceAccountName == "",
				"Linux only":                maps.Equal(s.NodeSelector, map[string]string{"kubernetes.io/os": "linux"}),
				"every taint tolerated":     len(s.Tolerations) == 1 && s.Tolerations[0] == v1.Toleration{Operator: v1.TolerationOpExists},
				"process ids":               s.HostPID && s.HostNetwork && !s.HostIPC,
				"one node at a time":        rollsOutSlowly(&r.set),
				"read-only root":            c.SecurityContext.ReadOnlyRootFilesystem != nil && *c.SecurityContext.ReadOnlyRootFilesystem,
				"bounded memory":            c.Resources.Limits.Memory().String() == "64Mi" && c.Resources.Limits.Cpu().IsZero(),
				"selected by its name":      maps.Equal(r.set.Spec.Selector.MatchLabels, map[string]string{"app.kubernetes.io/name": "jettison"}),
				"image pulled once":         c.ImagePullPolicy == v1.PullIfNotPresent,
				"a rollout ends in seconds": *s.TerminationGracePeriodSeconds <= 5,
			} {
				if !ok {
					t.Errorf("not true of the agent's pod: %s", what)
				}
			}
			checkLabels(t, r)
			checkProbes(t, c)
			node(t, c)
			checkHostPaths(t, s, want.host, want.mounts)
			if got, want := volume(s, "config").ConfigMap.Name, r.config.Name; got != want || !strings.HasPrefix(want, "jettison-") {
				t.Errorf("ConfigMap of the pod = %q, of the generator = %q, want the same with a checksum", got, want)
			}
		})
	}
}

// rollsOutSlowly reports whether a rollout replaces one pod at a time and watches each for a while.
func rollsOutSlowly(set *appsv1.DaemonSet) bool {
	return set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String() == "1" && set.Spec.MinReadySeconds == 30
}

func checkLabels(t *testing.T, r *rendered) {
	t.Helper()
	for what, labels := range map[string]map[string]string{
		"DaemonSet": r.set.Labels, "pod": r.set.Spec.Template.Labels, "ConfigMap": r.config.Labels,
	} {
		for _, key := range []string{"name", "component", "part-of", "managed-by"} {
			if labels["app.kubernetes.io/"+key] == "" {
				t.Errorf("labels of the %s lack app.kubernetes.io/%s", what, key)
			}
		}
	}
	for key, value := range r.set.Spec.Selector.MatchLabels {
		if r.set.Spec.Template.Labels[key] != value {
			t.Errorf("the selector %s=%s does not select the pod", key, value)
		}
	}
}

func checkProbes(t *testing.T, c *v1.Container) {
	t.Helper()
	for what, p := range map[string]*v1.Probe{"startup": c.StartupProbe, "readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		want := []string{"/jettison", "health"}
		if what == "readiness" { // a startup or liveness probe ends the agent, so it checks only whether the agent is alive
			want = append(want, "--ready")
		}
		if p == nil || p.Exec == nil || !slices.Equal(p.Exec.Command, want) {
			t.Errorf("command of the %s probe = %+v, want %v", what, p, want)
		}
	}
	if p := c.StartupProbe; p.PeriodSeconds*p.FailureThreshold < 60 {
		t.Error("the startup probe ends an agent that waits for the runtime and the kubelet")
	}
}

func node(t *testing.T, c *v1.Container) {
	t.Helper()
	for _, e := range c.Env {
		if e.Name == "NODE_NAME" && e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "spec.nodeName" {
			return
		}
	}
	t.Errorf("NODE_NAME is missing in %+v", c.Env)
}

func volume(s *v1.PodSpec, name string) *v1.Volume {
	for i := range s.Volumes {
		if s.Volumes[i].Name == name {
			return &s.Volumes[i]
		}
	}
	return &v1.Volume{}
}

// writableFolders are the folders of the node that the agent writes to. All others are mounted read-only.
var writableFolders = []string{"/sys/fs/cgroup", "/run/jettison", "/var/lib/jettison"}

func checkHostPaths(t *testing.T, s *v1.PodSpec, runtime string, at []string) {
	t.Helper()
	var found []string
	used := map[string]bool{}
	for _, m := range s.Containers[0].VolumeMounts {
		used[m.Name] = true
		v := volume(s, m.Name)
		path := ""
		if v.HostPath != nil {
			path = v.HostPath.Path
		}
		if m.ReadOnly == slices.Contains(writableFolders, path) {
			t.Errorf("read-only flag of mount %s = %v", m.MountPath, m.ReadOnly)
		}
		if m.Name != "runtime" {
			if path != "" && path != m.MountPath {
				t.Errorf("folder %s of the node is mounted at %s", path, m.MountPath)
			}
			continue
		}
		found = append(found, m.MountPath)
		if path != runtime || m.MountPropagation == nil || *m.MountPropagation != v1.MountPropagationHostToContainer || *v.HostPath.Type != v1.HostPathDirectory {
			t.Errorf("runtime's folder: mount %+v of %+v, want %s with mount propagation from the host", m, v, runtime)
		}
	}
	if !slices.Equal(found, at) {
		t.Errorf("the runtime's folder is mounted at %v, want %v", found, at)
	}
	for _, v := range s.Volumes {
		if !used[v.Name] {
			t.Errorf("volume %s has no mount", v.Name)
		}
	}
}

// capabilities are those of the agent without `privileged`. The manifest has the reason for each.
var capabilities = []v1.Capability{
	"CHOWN", "DAC_OVERRIDE", "FOWNER", "IPC_LOCK", "KILL", "SYS_ADMIN", "SYS_CHROOT", "SYS_NICE", "SYS_PTRACE", "SYS_RESOURCE",
}

func TestPrivilegesByOverlay(t *testing.T) {
	for name := range overlays {
		s := overlay(t, name).container().SecurityContext
		if name != "least-privilege" {
			if s.Privileged == nil || !*s.Privileged || s.Capabilities != nil || s.SeccompProfile != nil {
				t.Errorf("%s: security context = %+v, want only privileged", name, s)
			}
			continue
		}
		if s.Privileged != nil || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []v1.Capability{"ALL"}) ||
			!slices.Equal(s.Capabilities.Add, capabilities) {
			t.Errorf("%s: security context = %+v, want only the capabilities %v", name, s, capabilities)
		}
		if s.SeccompProfile == nil || s.SeccompProfile.Type != v1.SeccompProfileTypeRuntimeDefault ||
			s.AppArmorProfile == nil || s.AppArmorProfile.Type != v1.AppArmorProfileTypeUnconfined {
			t.Errorf("%s: want both profiles unconfined: seccomp %+v, AppArmor %+v", name, s.SeccompProfile, s.AppArmorProfile)
		}
	}
}

// A user's own configuration uses the same generator, and a change of it changes the pods.
func TestUserConfiguration(t *testing.T) {
	name := func(threshold string) string {
		fs, err := filesys.NewTmpConfirmedDir()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(fs.String()) })
		own := filepath.Join(fs.String(), "own")
		copyManifests(t, "..", fs.String())
		write(t, filepath.Join(own, "config.yaml"), "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nevictionHard: {memory.available: "+threshold+"}\n")
		write(t, filepath.Join(own, "kustomization.yaml"), `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../overlays/containerd]
configMapGenerator:
  - name: jettison
    namespace: kube-system
    behavior: merge
    files: [config.yaml]
images:
  - name: localhost/jettison
    newName: registry.example/jettison
    newTag: v1
`)
		r := decode(t, filesys.MakeFsOnDisk(), own)
		if !strings.Contains(r.config.Data["config.yaml"], threshold) || r.container().Image != "registry.example/jettison:v1" {
			t.Errorf("user's configuration is not rendered: %+v, image %s", r.config, r.container().Image)
		}
		return volume(r.pod(), "config").ConfigMap.Name
	}
	if a, b := name("200Mi"), name("300Mi"); a == b {
		t.Errorf("two configurations have the same name %s: a change would not restart the pods", a)
	}
}

// With the component each agent serves its metrics on the network. Certificate, key and token are
// mounted at the paths of the added configuration, Prometheus discovers the port, and the user's
// other settings stay.
func TestScrape(t *testing.T) {
	fs, err := filesys.NewTmpConfirmedDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(fs.String()) })
	own := filepath.Join(fs.String(), "own")
	copyManifests(t, "..", fs.String())
	lines, err := os.ReadFile("../components/scrape/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(own, "config.yaml"), string(lines)+"maxPods: 7\n")
	write(t, filepath.Join(own, "kustomization.yaml"), `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../overlays/crio]
components: [../components/scrape]
configMapGenerator:
  - name: jettison
    namespace: kube-system
    behavior: merge
    files: [config.yaml]
`)
	r := decode(t, filesys.MakeFsOnDisk(), own)
	c, text := r.container(), r.config.Data["config.yaml"]
	mount := slices.IndexFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == "scrape" && m.ReadOnly })
	secret := volume(r.pod(), "scrape").Secret
	if mount < 0 || secret == nil || secret.SecretName != "jettison-scrape" || *secret.DefaultMode != 0o400 || secret.Optional != nil {
		t.Fatalf("mount of the secret = %+v, volume %+v", c.VolumeMounts, secret)
	}
	at := c.VolumeMounts[mount].MountPath
	if len(c.Ports) != 1 || c.Ports[0].Name != "metrics" {
		t.Fatalf("ports of the container = %+v", c.Ports)
	}
	for _, want := range []string{
		fmt.Sprintf("listen: 0.0.0.0:%d\n", c.Ports[0].ContainerPort), "tlsCertFile: " + at + "/tls.crt\n",
		"tlsPrivateKeyFile: " + at + "/tls.key\n", "bearerTokenFile: " + at + "/token\n", "maxPods: 7\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the rendered configuration lacks %q: %q", want, text)
		}
	}
	checkProbes(t, c)
	checkHostPaths(t, r.pod(), overlays["crio"].host, overlays["crio"].mounts)
}

// copyManifests copies the manifests below a folder.
func copyManifests(t *testing.T, from, to string) {
	t.Helper()
	for _, part := range []string{"base", "overlays", "components"} {
		if err := os.CopyFS(filepath.Join(to, part), os.DirFS(filepath.Join(from, part))); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMissingFolder(t *testing.T) {
	if _, err := render(filesys.MakeFsOnDisk(), "nowhere"); err == nil || !strings.Contains(fmt.Sprint(err), "render nowhere: ") {
		t.Errorf("render of a missing folder = %v, want an error", err)
	}
}
