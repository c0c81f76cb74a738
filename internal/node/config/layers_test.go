package config

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kubeletsNode returns the /proc of a node with a kubelet that has a file, a drop-in, and flags for
// both.
func kubeletsNode(t *testing.T) string {
	t.Helper()
	return nodeProc(t, "kubelet", []string{"--config=/k.yaml", "--config-dir=/k.d", "--max-pods=50", "--root-dir=/data", "--maximum-dead-containers=7"},
		map[string]string{
			"k.yaml": kubelet + "evictionHard: {memory.available: 300Mi, nodefs.available: 1%}\nimageMinimumGCAge: 3m\nimageMaximumGCAge: 9h\n" +
				"evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 30s}\n",
			"k.d/10.conf": kubelet + "evictionHard: {memory.available: 400Mi}\nimageMinimumGCAge: 4m\npodsPerCore: 3\n",
		})
}

// findOrFail calls Find without this machine's sockets.
func findOrFail(t *testing.T, o Places) *Loaded {
	t.Helper()
	if o.Sockets == nil {
		o.Sockets = []Socket{}
	}
	l, err := Find(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Each value and its origin come from the last layer that sets it: default < kubelet's file < its
// drop-ins < its flags < agent's file < environment < flag.
func TestLayers(t *testing.T) {
	proc, dir := kubeletsNode(t), t.TempDir()
	writeFiles(t, dir, map[string]string{"own.yaml": own + "podsPerCore: 5\nevictionHard: {memory.available: 1Gi}\nrecord: /own\ncontainerGC: {minAge: 1s}\n" +
		"containerRuntimeEndpoint: /own.sock\nimageServiceEndpoint: /own.sock\nbreaker: null\nimageMaximumGCAge: null\n"})
	file := filepath.Join(dir, "own.yaml")
	t.Setenv("CONTAINER_RUNTIME_ENDPOINT", "unix:///environment.sock")
	l := findOrFail(t, Places{Path: file, ProcMount: proc, Record: "/flag"})
	got := map[string]string{}
	for _, s := range l.Settings() {
		got[s.Name()] = strings.TrimSpace(strings.NewReplacer(dir, "", proc, "").Replace(toText(s.Value) + " " + s.Origin.String()))
	}
	for name, want := range map[string]string{
		"evictionPressureTransitionPeriod": "5m0s default",
		"evictionSoft: memory.available":   "1Gi /k.yaml:6 (kubeletFile)",
		"imageMaximumGCAge":                "9h0m0s /k.yaml:5 (kubeletFile)", // null sets nothing
		"imageMinimumGCAge":                "4m0s /k.d/10.conf:4 (dropIn)",
		"maxPods":                          "50 --max-pods (kubeletFlag)",
		"rootDir":                          "/data --root-dir (kubeletFlag)",
		"containerGC: maxContainers":       "7 --maximum-dead-containers (kubeletFlag)",
		"containerGC: minAge":              "1s /own.yaml:6 (ownFile)",
		"podsPerCore":                      "5 /own.yaml:3 (ownFile)",
		"evictionHard: memory.available":   "1Gi /own.yaml:4 (ownFile)", // the map as a whole
		"evictionHard: nodefs.available":   "",
		"imageServiceEndpoint":             "/own.sock /own.yaml:8 (ownFile)",
		"containerRuntimeEndpoint":         "unix:///environment.sock CONTAINER_RUNTIME_ENDPOINT (environment)",
		"record":                           "/flag --record (flag)",
		"memoryAvailable":                  "lower default",
	} {
		if got[name] != want {
			t.Errorf("value of %s = %q, want %q", name, got[name], want)
		}
	}
	if want := file + ", over the kubelet, process 812: /k.yaml, /k.d/10.conf, --max-pods"; l.From != want || l.Path != file || !l.Kubelet || l.Kind != KindAgent {
		t.Errorf("layers = %q, want %q; %+v", l.From, want, l)
	}
	if !l.SetByOwn("evictionHard", "memory.available") || l.SetByOwn("maxPods") || l.SetByOwn("evictionSoft", "memory.available") {
		t.Error("SetByOwn does not report the file that sets a field")
	}
	if want := "CONTAINER_RUNTIME_ENDPOINT (environment)"; l.EndpointFrom != want {
		t.Errorf("reason for the runtime's socket = %q, want %q", l.EndpointFrom, want)
	}
	wantFiles := []string{filepath.Join(proc, "812/root/k.yaml"), filepath.Join(proc, "812/root/k.d"), filepath.Join(proc, "812/root/k.d/10.conf"), file}
	if strings.Join(l.Files, " ") != strings.Join(wantFiles, " ") {
		t.Errorf("files %q, want %q", l.Files, wantFiles)
	}
}

func toText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return fmt.Sprint(v)
}

// The agent's file must be valid by itself. It is used alone without a kubelet, or if the kubelet's
// configuration cannot be loaded. A value that a kubelet accepts but should not is still a warning.
func TestAgentFileOverKubelet(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"own.yaml": own + "evictionHard: {memory.available: 500Mi, swap.available: 1Gi}\n", "wrong.yaml": own + "evictionMaxPodGracePeriod: -1\n",
		"soft.yaml": own + "evictionSoft: {}\n",
	})
	file := filepath.Join(dir, "own.yaml")
	none := nodeProc(t, "bash", nil, nil)
	if l := findOrFail(t, Places{Path: file, ProcMount: none}); l.From != file || len(l.Warnings) > 0 || !l.AwaitsKubelet() || l.RootDir != "/var/lib/kubelet" {
		t.Errorf("agent's file without a kubelet: got %+v", l)
	}
	k3s := nodeProc(t, "k3s", []string{"server"}, nil)
	if l := findOrFail(t, Places{Path: file, ProcMount: k3s}); l.From != file || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "k3s, process 812") {
		t.Errorf("agent's file with k3s: got %+v", l)
	}
	odd := nodeProc(t, "kubelet", []string{"--config=/k.yaml"}, map[string]string{
		"k.yaml": kubelet + "evictionMaxPodGracePeriod: -1\nevictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 30s}\n"})
	l := findOrFail(t, Places{Path: file, ProcMount: odd})
	if len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "-1 is negative") || l.AwaitsKubelet() || len(hardThresholds(l)) != 2 {
		t.Errorf("agent's file with a questionable kubelet's file: warnings %q, thresholds %q", l.Warnings, hardThresholds(l))
	}
	if l := findOrFail(t, Places{Path: filepath.Join(dir, "soft.yaml"), ProcMount: odd}); len(l.EvictionSoft)+len(l.EvictionSoftGracePeriod) > 0 {
		t.Errorf("agent's file removes soft thresholds: got %v, grace periods %v", l.EvictionSoft, l.EvictionSoftGracePeriod)
	}
	if _, err := Find(t.Context(), Places{Path: filepath.Join(dir, "wrong.yaml"), ProcMount: odd}); err == nil ||
		!strings.Contains(err.Error(), "wrong.yaml:3: evictionMaxPodGracePeriod: -1 is negative") {
		t.Errorf("invalid agent's file: error %v, want one", err)
	}
}

// A file that other users may write is rejected, and the error names the command that corrects it.
func TestWritableFileIsRejected(t *testing.T) {
	dir := t.TempDir()
	none := nodeProc(t, "bash", nil, nil)
	for _, text := range []string{own, kubelet} {
		writeFiles(t, dir, map[string]string{"c.yaml": text})
		file := filepath.Join(dir, "c.yaml")
		link := filepath.Join(dir, "link")
		_ = os.Remove(link)
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
		find := func(path, want string) {
			t.Helper()
			_, err := Find(t.Context(), Places{Path: path, ProcMount: none})
			_, checked := Check(t.Context(), path, os.Stdin)
			for _, err := range []error{err, checked} {
				if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
					t.Errorf("load %s: error %v, want %q", path, err, want)
				}
			}
		}
		find(file, "")
		if err := os.Chmod(file, 0o664); err != nil {
			t.Fatal(err)
		}
		find(file, "")
		if err := os.Chmod(file, 0o646); err != nil {
			t.Fatal(err)
		}
		find(file, "config "+file+": every user may write to it (-rw-r--rw-), and the file decides which pods are killed: chmod o-w "+file)
		find(link, "config "+link+": every user may write to it (-rw-r--rw-), and the file decides which pods are killed: chmod o-w "+link)
		if os.Geteuid() != 0 {
			continue
		}
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(file, 1234, 0); err != nil {
			t.Fatal(err)
		}
		find(file, "config "+file+": it belongs to user 1234, and the file decides which pods are killed: chown root "+file)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	proc := nodeProc(t, "kubelet", []string{"--config=/k.yaml"}, map[string]string{"k.yaml": kubelet + "evictionHard: {memory.available: 300Mi}\n"})
	if err := os.Chmod(filepath.Join(proc, "812/root/k.yaml"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(DefaultPath); err == nil {
		t.Skip("this machine has " + DefaultPath)
	}
	if l := findOrFail(t, Places{ProcMount: proc}); l.From != FromDefaults || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "chmod o-w /k.yaml") {
		t.Errorf("writable kubelet's file was loaded: %+v", l)
	}
}

// Standard input is trusted: the parent process opened it.
func TestCheckReadsStandardInput(t *testing.T) {
	for text, want := range map[string]string{own + "gate: false\n": "", own + "gat: false\n": `config stdin:3: unknown field "gat": did you mean "gate"?`} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(text); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		l, err := Check(t.Context(), "-", r)
		if want == "" && (err != nil || l.Gate || l.Path != "stdin") || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("check of standard input: got %+v, error %v, want %q", l, err, want)
		}
		_ = r.Close()
	}
}

// If no layer names the runtime's socket, the first usual socket that accepts connections is used,
// with the reason.
func TestFindRuntimeSocket(t *testing.T) {
	t.Setenv("CONTAINER_RUNTIME_ENDPOINT", "")
	dir, err := os.MkdirTemp("", "c") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	all := []Socket{{"one", dir + "/1"}, {"two", dir + "/2"}, {"three", dir + "/3"}}
	listen := func(path string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	proc := nodeProc(t, "bash", nil, nil)
	writeFiles(t, dir, map[string]string{"own.yaml": own + "containerRuntimeEndpoint: \"\"\n", "named.yaml": own + "containerRuntimeEndpoint: /x.sock\n", "1": "no socket"})
	expect := func(name, endpoint, why string) {
		t.Helper()
		l := findOrFail(t, Places{Path: filepath.Join(dir, "own.yaml"), ProcMount: proc, Sockets: all})
		if l.ContainerRuntimeEndpoint != endpoint || l.EndpointFrom != why {
			t.Errorf("%s: socket %q, reason %q, want %q, %q", name, l.ContainerRuntimeEndpoint, l.EndpointFrom, endpoint, why)
		}
	}
	expect("none", "unix:///run/containerd/containerd.sock",
		"the default: none of the usual sockets exists ("+dir+"/1, "+dir+"/2, "+dir+"/3)")
	two := listen(all[1].Path)
	two.SetUnlinkOnClose(false)
	expect("one", "unix://"+dir+"/2", "found: the usual socket of two accepts connections")
	three := listen(all[2].Path)
	expect("two", "unix://"+dir+"/2", "found: the usual socket of two accepts connections; so does that of three, which is later in crictl's "+
		"order: set containerRuntimeEndpoint to use it")
	_ = two.Close()
	expect("the first is dead", "unix://"+dir+"/3", "found: the usual socket of three accepts connections")
	_ = three.Close()
	expect("all are dead", "unix://"+dir+"/2", "found: the usual socket of two exists, but accepts no connections")
	named := filepath.Join(dir, "named.yaml")
	if l := findOrFail(t, Places{Path: named, ProcMount: proc, Sockets: all}); l.ContainerRuntimeEndpoint != "/x.sock" || l.EndpointFrom != named+":3 (ownFile)" {
		t.Errorf("named socket: got %q, reason %q", l.ContainerRuntimeEndpoint, l.EndpointFrom)
	}
	kubelets := nodeProc(t, "kubelet", nil, nil)
	if l := findOrFail(t, Places{Path: filepath.Join(dir, "own.yaml"), ProcMount: kubelets, Sockets: all}); l.ContainerRuntimeEndpoint != "unix:///run/containerd/containerd.sock" ||
		l.EndpointFrom != "the kubelet's default" {
		t.Errorf("kubelet without a socket: got %q, reason %q", l.ContainerRuntimeEndpoint, l.EndpointFrom)
	}
	t.Setenv("CONTAINER_RUNTIME_ENDPOINT", "tcp://1")
	if _, err := Find(t.Context(), Places{Path: named, ProcMount: proc, Sockets: all}); err == nil ||
		!strings.HasPrefix(err.Error(), `config: environment variable CONTAINER_RUNTIME_ENDPOINT: endpoint "tcp://1": want unix:///`) {
		t.Errorf("invalid environment variable: error %v, want one", err)
	}
}

// Until a runtime has answered, the search repeats unless a layer names the socket. A socket that
// appears replaces one that does not exist, never one that accepts connections or is named.
func TestFindRuntimeAgain(t *testing.T) {
	dir, err := os.MkdirTemp("", "c") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	all := []Socket{{"one", dir + "/1"}, {"two", dir + "/2"}}
	writeFiles(t, dir, map[string]string{"own.yaml": own, "unset.yaml": own + "containerRuntimeEndpoint: \"\"\n", "named.yaml": own + "containerRuntimeEndpoint: /x.sock\n"})
	noKubelet, kubelet := nodeProc(t, "bash", nil, nil), nodeProc(t, "kubelet", nil, nil)
	const environment = "unix:///e.sock"
	places := map[string]struct{ file, proc, variable, stays string }{
		"none": {"own.yaml", noKubelet, "", ""}, "unset": {"unset.yaml", noKubelet, "", ""}, "named": {"named.yaml", noKubelet, "", "/x.sock"},
		"environment":                {"own.yaml", noKubelet, environment, environment},
		"environment over an unset":  {"unset.yaml", noKubelet, environment, environment},
		"a kubelet that names none":  {"own.yaml", kubelet, "", "unix:///run/containerd/containerd.sock"},
		"environment over a kubelet": {"own.yaml", kubelet, environment, environment},
	}
	early := map[string]*Loaded{}
	for name, p := range places {
		t.Setenv(envRuntime, p.variable)
		l := findOrFail(t, Places{Path: filepath.Join(dir, p.file), ProcMount: p.proc, Sockets: all})
		if l.RefindRuntime(t.Context()) {
			t.Errorf("%s: socket changed although none exists: %s", name, l.ContainerRuntimeEndpoint)
		}
		early[name] = l
	}
	come := func(at int) {
		t.Helper()
		l, err := net.Listen("unix", all[at].Path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	come(1)
	for name, p := range places {
		l, want := early[name], p.stays
		if want == "" {
			want = "unix://" + dir + "/2"
		}
		if again := l.RefindRuntime(t.Context()); again != (p.stays == "") || l.ContainerRuntimeEndpoint != want {
			t.Errorf("%s: socket changed = %v, socket %s (%s), want %s", name, again, l.ContainerRuntimeEndpoint, l.EndpointFrom, want)
		}
	}
	l := early["none"]
	if want := "found: the usual socket of two accepts connections now"; l.EndpointFrom != want || l.origin(endpointField).Source != SourceFound {
		t.Errorf("reason of the new socket = %s, want %s", l.EndpointFrom, want)
	}
	if come(0); l.RefindRuntime(t.Context()) {
		t.Errorf("socket that accepts connections was replaced by %s", l.ContainerRuntimeEndpoint)
	}
	t.Setenv(envRuntime, "")
	next := findOrFail(t, Places{Path: filepath.Join(dir, "own.yaml"), ProcMount: noKubelet, Sockets: all})
	if c := l.Reloaded(next); len(c.NextStart) > 0 || c.Loaded.ContainerRuntimeEndpoint != l.ContainerRuntimeEndpoint {
		t.Errorf("reload after the search: next start %+v, socket %s", c.NextStart, c.Loaded.ContainerRuntimeEndpoint)
	}
	t.Setenv(envRuntime, environment)
	unset := findOrFail(t, Places{Path: filepath.Join(dir, "unset.yaml"), ProcMount: noKubelet, Sockets: all})
	if unset.ContainerRuntimeEndpoint != environment || unset.EndpointFrom != envRuntime+" (environment)" {
		t.Errorf("empty in the file, set by the environment: socket %s, reason %s", unset.ContainerRuntimeEndpoint, unset.EndpointFrom)
	}
}
