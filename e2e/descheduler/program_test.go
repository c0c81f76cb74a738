package descheduler

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"jettison/cluster/deschedule"
)

// dressed gives a pod of largeCluster the further fields of pods in a real cluster, which plans
// ignore.
func dressed(p *v1.Pod) {
	owner := p.OwnerReferences[0].Name
	p.GenerateName, p.ResourceVersion = owner+"-", "123456"
	p.Labels["app.kubernetes.io/name"], p.Labels["app.kubernetes.io/instance"], p.Labels["pod-template-hash"] = owner, owner, "7d4b9c6f5d"
	p.Annotations = map[string]string{
		"checksum/config": strings.Repeat("0123456789abcdef", 4), "prometheus.io/scrape": "true", "prometheus.io/port": "8080",
		"kubectl.kubernetes.io/restartedAt": "2026-01-02T03:04:05Z",
	}
	for _, manager := range []string{"kube-controller-manager", "kubelet"} {
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate,
			APIVersion: "v1", FieldsType: "FieldsV1", Time: &p.CreationTimestamp,
			FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{` + strings.Repeat(`"f:a-field-of-it":{".":{},"f:part":{}},`, 25) + `"f:last":{}}}`)}})
	}
	s := &p.Spec
	s.ServiceAccountName, s.SchedulerName, s.DNSPolicy, s.RestartPolicy = owner, "default-scheduler", v1.DNSClusterFirst, v1.RestartPolicyAlways
	s.TerminationGracePeriodSeconds, s.EnableServiceLinks, s.PreemptionPolicy = new(int64(30)), new(true), new(v1.PreemptLowerPriority)
	s.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: new(true), FSGroup: new(int64(1000))}
	for _, key := range []string{v1.TaintNodeNotReady, v1.TaintNodeUnreachable} {
		s.Tolerations = append(s.Tolerations, v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute,
			TolerationSeconds: new(int64(300))})
	}
	s.Volumes = []v1.Volume{
		{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: owner}, DefaultMode: new(int32(420))}}},
		{Name: "kube-api-access-x7k2p", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: new(int32(420)),
			Sources: []v1.VolumeProjection{{ServiceAccountToken: &v1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"},
					Items: []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}}}}}},
	}
	c := &s.Containers[0]
	c.Image, c.Args = "registry.example.com/team/"+owner+":1.2.3", []string{"--config=/etc/config/config.yaml", "--listen=:8080", "--log=json"}
	c.Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: v1.ProtocolTCP}}
	c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: c.Resources.Requests[v1.ResourceMemory]}
	for i := range 12 {
		c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("SOME_SETTING_%d", i), Value: fmt.Sprintf("https://service-%d.%s.svc:8443/path", i, p.Namespace)})
	}
	c.VolumeMounts = []v1.VolumeMount{{Name: "config", MountPath: "/etc/config", ReadOnly: true},
		{Name: "kube-api-access-x7k2p", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}}
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http"),
		Scheme: v1.URISchemeHTTP}}, TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
	c.LivenessProbe, c.ReadinessProbe = probe, probe
	c.TerminationMessagePath, c.TerminationMessagePolicy, c.ImagePullPolicy = "/dev/termination-log", v1.TerminationMessageReadFile, v1.PullIfNotPresent
	c.SecurityContext = &v1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}}}
	for _, kind := range []v1.PodConditionType{"PodReadyToStartContainers", v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled} {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: kind, Status: v1.ConditionTrue, LastTransitionTime: p.CreationTimestamp})
	}
	p.Status.HostIP, p.Status.HostIPs, p.Status.PodIP, p.Status.PodIPs = "10.0.0.1", []v1.HostIP{{IP: "10.0.0.1"}}, "10.1.2.3", []v1.PodIP{{IP: "10.1.2.3"}}
	status := &p.Status.ContainerStatuses[0]
	status.Image, status.ImageID = c.Image, "registry.example.com/team/"+owner+"@sha256:"+strings.Repeat("0123456789abcdef", 4)
	status.ContainerID, status.Ready, status.Started = "containerd://"+strings.Repeat("fedcba9876543210", 4), true, new(true)
	status.State.Running = &v1.ContainerStateRunning{StartedAt: p.CreationTimestamp}
}

// server is an API server with constant objects that accepts every eviction. It keeps every object
// encoded, as JSON and as protobuf.
type server struct {
	*httptest.Server
	objects   map[string][2][][]byte // by resource
	evictions atomic.Int64
}

const protobuf = runtime.ContentTypeProtobuf

func encoder(contentType string) runtime.Encoder {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), contentType)
	if !ok {
		panic(contentType)
	}
	return scheme.Codecs.EncoderForVersion(info.Serializer, schema.GroupVersions(scheme.Scheme.PrioritizedVersionsAllGroups()))
}

func encoded(contentType string, o runtime.Object) []byte {
	text, err := runtime.Encode(encoder(contentType), o)
	if err != nil {
		panic(err)
	}
	return text
}

func newServer(s *deschedule.Snapshot) *server {
	a := &server{objects: map[string][2][][]byte{}}
	add := func(resource string, o runtime.Object) {
		both := a.objects[resource]
		both[0], both[1] = append(both[0], encoded(runtime.ContentTypeJSON, o)), append(both[1], encoded(protobuf, o))
		a.objects[resource] = both
	}
	spaces := map[string]bool{}
	for _, n := range s.Nodes {
		add("nodes", n)
	}
	for _, p := range s.Pods {
		add("pods", p)
		if !spaces[p.Namespace] {
			spaces[p.Namespace] = true
			add("namespaces", &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}})
		}
	}
	a.Server = httptest.NewServer(a)
	return a
}

func (a *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	last := parts[len(parts)-1]
	switch q := r.URL.Query(); {
	case r.Method == http.MethodPost:
		if last == "eviction" {
			a.evictions.Add(1)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		a.answer(w, http.StatusCreated, &metav1.Status{Status: metav1.StatusSuccess})
	case r.Method != http.MethodGet:
		a.answer(w, http.StatusMethodNotAllowed, &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed})
	case q.Get("watch") != "":
		a.watch(w, r, last, q.Get("sendInitialEvents") != "")
	case last == "version":
		a.plain(w, version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.0"})
	case r.URL.Path == "/api":
		a.plain(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		policy := metav1.GroupVersionForDiscovery{GroupVersion: "policy/v1", Version: "v1"}
		a.plain(w, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{
			{Name: "policy", Versions: []metav1.GroupVersionForDiscovery{policy}, PreferredVersion: policy}}})
	case r.URL.Path == "/api/v1":
		a.plain(w, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{{Name: "pods/eviction", Kind: "Eviction", Group: "policy", Version: "v1", Namespaced: true}}})
	default:
		a.answer(w, http.StatusNotFound, &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
	}
}

func (a *server) plain(w http.ResponseWriter, o any) {
	text, err := yaml.Marshal(o)
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_, _ = w.Write(text)
}

func (a *server) answer(w http.ResponseWriter, code int, s *metav1.Status) {
	s.Kind, s.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_, _ = w.Write(encoded(runtime.ContentTypeJSON, s))
}

// bookmark returns the object of a resource that marks the end of the initial objects.
func bookmark(resource string) runtime.Object {
	meta := metav1.ObjectMeta{ResourceVersion: "123456", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if plural := strings.ToLower(gvk.Kind) + "s"; (plural == resource || strings.TrimSuffix(plural, "s")+"es" == resource) && gvk.Version == "v1" {
			o, err := scheme.Scheme.New(gvk)
			if err != nil {
				panic(err)
			}
			if in, ok := o.(metav1.Object); ok {
				in.SetResourceVersion(meta.ResourceVersion)
				in.SetAnnotations(meta.Annotations)
				return o
			}
		}
	}
	panic(resource)
}

// watch sends the objects of a watch list, and no events afterwards.
func (a *server) watch(w http.ResponseWriter, r *http.Request, resource string, initial bool) {
	form, contentType := 0, runtime.ContentTypeJSON
	if strings.Contains(r.Header.Get("Accept"), protobuf) {
		form, contentType = 1, protobuf
	}
	streamed := contentType
	if form == 1 {
		streamed += ";stream=watch"
	}
	w.Header().Set("Content-Type", streamed)
	send := func(kind string, object []byte) {
		if form == 0 {
			_, _ = fmt.Fprintf(w, "{\"type\":%q,\"object\":%s}\n", kind, strings.TrimSpace(string(object)))
			return
		}
		event := &metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object}}
		frame, err := event.Marshal()
		if err != nil {
			panic(err)
		}
		_, _ = w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(frame))))
		_, _ = w.Write(frame)
	}
	if initial {
		for _, object := range a.objects[resource][form] {
			send("ADDED", object)
		}
		send("BOOKMARK", encoded(contentType, bookmark(resource)))
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// flags are the flags of the two programs for a policy.
var flags = map[string][]string{"jettison-cluster": {"deschedule", "--policy"}, "descheduler": {"--policy-config-file"}}

// built builds the two programs, each with its own module versions.
func built(b *testing.B, dir string) {
	b.Helper()
	run := func(in string, args ...string) string {
		cmd := exec.CommandContext(b.Context(), "go", args...)
		cmd.Dir = in
		cmd.Stderr = os.Stderr // also prints downloads
		out, err := cmd.Output()
		if err != nil {
			b.Fatalf("go %v failed to build the program: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	run("../..", "build", "-o", filepath.Join(dir, "jettison-cluster"), "./cmd/jettison-cluster")
	run(run(".", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/descheduler"), "build", "-o", filepath.Join(dir, "descheduler"), "./cmd/descheduler")
}

// BenchmarkProgram measures one cycle of the two programs on one API server, from start to end:
// reading, caching, planning and requests, with the defaults of each except the request rate, which
// is unlimited. JETTISON_PROGRAMS is a directory that has both. Without it they are built.
func BenchmarkProgram(b *testing.B) {
	dir := b.TempDir()
	policy, err := yaml.Marshal(largePolicy())
	if err != nil {
		b.Fatal(err)
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		return path
	}
	at := file("policy", string(policy))
	bin := os.Getenv("JETTISON_PROGRAMS")
	if bin == "" {
		bin = b.TempDir()
		built(b, bin)
	}
	for _, nodes := range []int{100, 500, 1000, 2000, 5000} {
		var a *server
		for _, name := range []string{"jettison-cluster", "descheduler"} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, name), func(b *testing.B) {
				if a == nil {
					s := largeCluster(nodes)
					for _, p := range s.Pods {
						dressed(p)
					}
					a = newServer(s)
				}
				kubeconfig := file("kubeconfig", "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: \""+a.URL+
					"\"}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n")
				for b.Loop() {
					runProgram(b, a, filepath.Join(bin, name), append(slices.Clone(flags[name]), at, "--kubeconfig", kubeconfig))
				}
			})
		}
		if a != nil {
			a.CloseClientConnections()
			a.Close()
		}
	}
}

func runProgram(b *testing.B, a *server, program string, args []string) {
	before := a.evictions.Load()
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append(args, "--client-connection-qps=100000", "--client-connection-burst=100000")...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	ended, most := make(chan error, 1), make(chan float64)
	go func() { ended <- cmd.Wait() }()
	over := make(chan struct{})
	go func() { most <- mostResident(cmd.Process.Pid, over) }()
	err := <-ended
	close(over)
	resident := <-most
	if err != nil {
		b.Fatalf("descheduler program failed to run: %v\n%s", err, out.Bytes()[max(0, out.Len()-4000):])
	}
	b.ReportMetric(time.Since(began).Seconds(), "s")
	b.ReportMetric((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), "cpu-s")
	b.ReportMetric(resident, "MiB-RSS")
	b.ReportMetric(float64(a.evictions.Load()-before), "evictions")
}

// mostResident returns the largest resident memory of a process while it runs, in MiB. The kernel's
// figure of an ended process includes that of its parent before exec.
func mostResident(pid int, over <-chan struct{}) (most float64) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // the process may have ended
		if _, line, ok := strings.Cut(string(text), "VmHWM:"); ok {
			kilobytes := 0.0
			if _, err := fmt.Sscan(line, &kilobytes); err == nil {
				most = max(most, kilobytes/1024)
			}
		}
		select {
		case <-over:
			return most
		case <-tick.C:
		}
	}
}
