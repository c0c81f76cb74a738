package config

import (
	"errors"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/eviction"
	"jettison/stats"
)

const own = "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\n"
const kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// Parse reads the text of a configuration file.
func Parse(text []byte) (*Loaded, error) {
	root, err := parseDocument(text)
	if err != nil {
		return nil, err
	}
	return (&parts{root: root, names: []string{""}}).load()
}

// Each error is one line with its place and cause.
func TestErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", `1: the file is empty: want apiVersion: jettison/v1alpha1, kind: AgentConfiguration`},
		{"not YAML", own + "a: [1\n", `3: not YAML: did not find expected ',' or ']'`},
		{"a tab", own + "evictionHard:\n\tmemory.available: 1\n", `4: not YAML: found character that cannot start any token`},
		{"a list", "- a\n", `1: want a mapping such as "kind: AgentConfiguration"`},
		{"no kind", "evictionHard: {}\n", `1: apiVersion "", kind "": want jettison/v1alpha1, AgentConfiguration or a kubelet's kubelet.config.k8s.io/v1beta1, KubeletConfiguration`},
		{"another kind", "apiVersion: v1\nkind: Pod\n", `2: apiVersion "v1", kind "Pod": want jettison/v1alpha1, AgentConfiguration or a kubelet's kubelet.config.k8s.io/v1beta1, KubeletConfiguration`},
		{"two documents", own + "---\n" + own, `3: more than one document in the file`},
		{"a misspelt field", own + "evictionHrad: {}\n", `3: unknown field "evictionHrad": did you mean "evictionHard"?`},
		{"another case", own + "\n\nevictionhard: {}\n", `5: unknown field "evictionhard": did you mean "evictionHard"?`},
		{"nothing like it", own + "xyzzy: 1\n", `3: unknown field "xyzzy"`},
		{"a signal beside evictionHard", own + "memory.available: 1Gi\n", `3: unknown field "memory.available": the signal belongs in evictionHard or evictionSoft`},
		{"a nested field", own + "containerGC:\n  minAg: 1s\n", `4: containerGC: unknown field "minAg": did you mean "minAge"?`},
		{"twice", own + "gate: true\nsocket: a\ngate: false\n", `5: gate is set a second time, first on line 3`},
		{"a signal twice", own + "evictionHard:\n  memory.available: 1Mi\n  memory.available: 2Mi\n", `5: evictionHard: memory.available is set a second time, first on line 4`},
		{"a number for a mapping", own + "evictionHard: 3\n", `3: evictionHard: want a mapping, got "3"`},
		{"a mapping for text", own + "evictionHard:\n  memory.available: {a: b}\n", `4: evictionHard: memory.available: want text, got a mapping`},
		{"text for a number", own + "imageGCHighThresholdPercent: many\n", `3: imageGCHighThresholdPercent: want a whole number, got "many"`},
		{"text for a truth", own + "breaker: maybe\n", `3: breaker: want true or false, got "maybe"`},
		{"text for a list", own + "annotationNamespaces: default\n", `3: annotationNamespaces: want a list, got "default"`},
		{"a bare number for a duration", own + "runtimeWait: 30\n", `3: runtimeWait: want a duration such as "1m30s", got "30"`},
		{"a negative duration", own + "runtimeWait: -1s\n", `3: runtimeWait: -1s is negative`},
		{"not one of", own + "memoryAvailable: all\n", `3: memoryAvailable: "all": want one of [workingSet kernel lower]`},
		{"an unknown signal", own + "evictionHard:\n  nodefs.available: 5%\n  mem.available: 1Mi\n", `5: evictionHard: mem.available: unsupported eviction signal mem.available`},
		{"a negative threshold", own + "evictionHard: {memory.available: -1Mi}\n", `3: evictionHard: memory.available: eviction threshold memory.available must be positive: -1Mi`},
		{"a threshold above all", own + "evictionHard:\n\n  memory.available: 150%\n", `5: evictionHard: memory.available: eviction percentage threshold memory.available must be <= 100%: 150%`},
		{"in a kubelet's file too", kubelet + "evictionHard: {memory.available: 1Mx}\n", `3: evictionHard: memory.available: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`},
		{"a fraction for a whole number", own + "imageGCHighThresholdPercent: 1.5\n", `3: imageGCHighThresholdPercent: want a whole number, got "1.5"`},
		{"a truth for text", own + "socketGroup: true\n", `3: socketGroup: want text, got "true"`},
		{"a group without a socket", own + "socket: \"\"\nsocketGroup: ops\n", `4: socketGroup: group "ops" needs a socket: set socket to a path, or remove socketGroup`},
		{"an endpoint that is none", own + "\ncontainerRuntimeEndpoint: tcp://127.0.0.1:1\n", `4: containerRuntimeEndpoint: endpoint "tcp://127.0.0.1:1": want unix:///PATH/TO/SOCKET`},
		{"a signal that a kubelet has not, in its file", kubelet + "evictionHard: {swap.available: 1Gi}\n", `3: evictionHard: swap.available: unsupported eviction signal swap.available`},
		{"a soft threshold without grace period", own + "evictionSoft:\n  memory.available: 1Gi\n", `4: evictionSoft: memory.available: grace period must be specified for the soft eviction threshold memory.available`},
		{"a negative grace period", own + "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: -30s}\n", `4: evictionSoftGracePeriod: memory.available: invalid eviction grace period specified: -30s, must be a positive value`},
		{"a negative minimum reclaim", own + "evictionMinimumReclaim: {memory.available: -1Mi}\n", `3: evictionMinimumReclaim: memory.available: negative eviction minimum reclaim specified for memory.available`},
		{"an odd threshold", own + "evictionHard: {memory.available: 100.0%}\n", `3: evictionHard: memory.available: 100.0% is always met: write 100% to switch the threshold memory.available off`},
		{"a minimum reclaim of nothing", own + "evictionMinimumReclaim: {pid.available: 1}\n", `3: evictionMinimumReclaim: pid.available: minimum reclaim for pid.available has no eviction threshold`},
		{"a negative maximum", own + "evictionMaxPodGracePeriod: -1\n", `3: evictionMaxPodGracePeriod: -1 is negative: evictions for soft thresholds use a grace period of 1 s`},
		{"a negative transition period", own + "evictionPressureTransitionPeriod: -1s\n", `3: evictionPressureTransitionPeriod: -1s is negative: conditions end without delay`},
		{"an allocatable that is none", own + "enforceNodeAllocatable: [pod]\n", `3: enforceNodeAllocatable: "pod": want one of [none pods system-reserved system-reserved-compressible kube-reserved kube-reserved-compressible]`},
		{"a threshold for images above all", own + "imageGCHighThresholdPercent: 101\n", `3: imageGCHighThresholdPercent: invalid HighThresholdPercent 101, must be in range [0-100]`},
		{"thresholds for images the wrong way round", own + "imageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 80\n", `4: imageGCLowThresholdPercent: LowThresholdPercent 80 can not be higher than HighThresholdPercent 70`},
		{"a negative age of images", own + "imageMaximumGCAge: -1s\n", `3: imageMaximumGCAge: invalid maximum image age: -1s`},
		{"a negative age of containers", own + "containerGC: {createdMinAge: -1s}\n", `3: containerGC: invalid minimum age of created containers: -1s`},
		{"a period that is none", own + "imageGCPeriod: 1ms\n", `3: imageGCPeriod: 1ms: want at least 1s, or 0 to disable the period`},
		{"a merge key", own + "containerGC:\n  <<: {minAge: 1s}\n", `4: want a plain field name`},
	} {
		_, err := Parse([]byte(c.text))
		if err == nil {
			t.Errorf("%s: no error, want %s", c.name, c.want)
		} else if got := err.Error(); got != c.want {
			t.Errorf("error of %s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestAgentFile(t *testing.T) {
	l, err := Parse([]byte(own + `
evictionHard:
  memory.available: 200Mi
  pid.available: "100"
evictionSoft: {memory.available: 1Gi}
evictionSoftGracePeriod: {memory.available: 30s}
memoryAvailable: kernel
annotationNamespaces: [kube-system, ops]
protectedNamespaces: []
containerGC: {maxPerPodContainer: 2}
runtimeWait: 0s
gate: off
socket: null
`))
	if err != nil {
		t.Fatal(err)
	}
	var hard []string
	for _, h := range l.Thresholds {
		hard = append(hard, h.String())
	}
	if want := []string{"memory.available<200Mi", "pid.available<100", "memory.available<1Gi", "allocatableMemory.available<200Mi"}; !slices.Equal(hard, want) {
		t.Errorf("thresholds %v, want %v: a mapping of the file replaces the defaults", hard, want)
	}
	if l.MemoryAvailable != stats.MemoryAvailableKernel || !slices.Equal(l.AnnotationNamespaces, []string{"kube-system", "ops"}) ||
		len(l.ProtectedNamespaces) != 0 || l.RuntimeWait != 0 || l.Gate {
		t.Errorf("configuration of the agent's file = %+v, want the file's values", l.Config)
	}
	if l.ContainerGC != (ContainerGC{MaxPerPodContainer: 2, MaxContainers: -1, CreatedMinAge: Duration(10 * time.Minute)}) {
		t.Errorf("containerGC = %+v, want defaults for absent fields", l.ContainerGC)
	}
	if l.Socket != "/run/jettison/jettison.sock" {
		t.Errorf("socket = %q, want the default for null", l.Socket)
	}
	if want := []string{}; !slices.Equal(l.Warnings, want) {
		t.Errorf("warnings %q, want %q", l.Warnings, want)
	}
}

// A kubelet's file is accepted: its unknown fields are ignored with one warning, and so are the
// agent's own fields.
func TestAKubeletsFile(t *testing.T) {
	l, err := Parse([]byte(kubelet + `
address: 0.0.0.0
authentication: {anonymous: {enabled: false}}
evictionHard: {memory.available: 500Mi}
mergeDefaultEvictionSettings: true
cgroupRoot: /nodes
breaker: true
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Thresholds) != 6 || l.EvictionHard["memory.available"] != "500Mi" || l.EvictionHard["nodefs.available"] != "10%" {
		t.Errorf("evictionHard = %v, want it merged with the defaults", l.EvictionHard)
	}
	if l.MemoryAvailable != stats.MemoryAvailableWorkingSet || l.Breaker || l.CgroupRoot != "/nodes" {
		t.Errorf("configuration of the kubelet's file = %+v, want the kubelet's defaults and cgroupRoot /nodes", l.Config)
	}
	want := []string{"ignored fields of the kubelet's file: address, authentication",
		`line 9: the kubelet ignores the unknown field "breaker": it is a field of AgentConfiguration`}
	if !slices.Equal(l.Warnings, want) {
		t.Errorf("warnings %q, want %q", l.Warnings, want)
	}
}

// kubeadm writes zero values, which select the defaults. A value that a kubelet accepts and logs is
// a warning.
func TestKubeadmFile(t *testing.T) {
	l, err := Parse([]byte(kubelet + `
authentication: {anonymous: {enabled: false}, x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
cgroupDriver: systemd
containerRuntimeEndpoint: ""
evictionPressureTransitionPeriod: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
registerWithTaints: [{key: a, effect: NoSchedule, extra: 1}]
staticPodPath: /etc/kubernetes/manifests
staticPodPath: /etc/kubernetes/manifests
---
`))
	if err != nil {
		t.Fatal(err)
	}
	if l.ContainerRuntimeEndpoint != "unix:///run/containerd/containerd.sock" || l.CgroupDriver != "systemd" || l.ImageMinimumGCAge != Duration(2*time.Minute) {
		t.Errorf("configuration of kubeadm's file = %+v, want defaults for zero values", l.Config)
	}
	want := []string{
		"ignored fields of the kubelet's file: authentication",
		`line 10: the kubelet ignores the unknown field "registerWithTaints: 0: extra"`,
		"line 12: staticPodPath is set a second time, first on line 11: the last value is used",
	}
	if !slices.Equal(l.Warnings, want) {
		t.Errorf("warnings\n got %q\nwant %q", l.Warnings, want)
	}
}

// A kubelet ignores a field that it does not know, and uses its defaults instead. Real files have
// thresholds next to evictionHard, and fields in another notation.
func TestUnknownFieldsOfAKubelet(t *testing.T) {
	l, err := Parse([]byte(kubelet + `evictionHard:
  memory.available: 300Mi
nodefs.available: 12%
imagefs.inodesfree: 6%
evictionhard: {memory.available: 1Gi}
eviction-hard: {memory.available: 1Gi}
evictionSoftGracePeriods: {memory.available: 1m}
xyzzy: 1
healthzPort: 10248
`))
	if err != nil {
		t.Fatal(err)
	}
	const ignores = ": the kubelet ignores the unknown field "
	want := []string{
		"ignored fields of the kubelet's file: healthzPort",
		"line 5" + ignores + `"nodefs.available": the signal belongs in evictionHard or evictionSoft`,
		"line 6" + ignores + `"imagefs.inodesfree": did you mean the signal "imagefs.inodesFree" in evictionHard?`,
		"line 7" + ignores + `"evictionhard": did you mean "evictionHard"?`,
		"line 8" + ignores + `"eviction-hard": did you mean "evictionHard"?`,
		"line 9" + ignores + `"evictionSoftGracePeriods": did you mean "evictionSoftGracePeriod"?`,
		"line 10" + ignores + `"xyzzy"`,
	}
	if !slices.Equal(l.Warnings, want) {
		t.Errorf("warnings\n got %q\nwant %q", l.Warnings, want)
	}
}

// kubeletFields has the fields of the kubelet's own type. Its source is read, because its package
// imports modules that this one does not need.
func TestKubeletFields(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubelet").Output()
	if err != nil {
		t.Fatal(err)
	}
	types := filepath.Join(strings.TrimSpace(string(dir)), "config/v1beta1/types.go")
	file, err := goparser.ParseFile(token.NewFileSet(), types, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "KubeletConfiguration" {
			return true
		}
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
			if name, _, _ := strings.Cut(tag.Get("json"), ","); name != "" {
				want[name] = true
			}
		}
		return false
	})
	if !maps.Equal(kubeletFields, want) {
		t.Errorf("fields of a kubelet\n got %v\nwant %v", slices.Sorted(maps.Keys(kubeletFields)), slices.Sorted(maps.Keys(want)))
	}
}

// evictionHard follows the kubelet's loader: absent or null selects the defaults, an empty mapping
// selects nothing.
func TestDefaultThresholds(t *testing.T) {
	for text, want := range map[string]int{own: 6, own + "evictionHard:\n": 6, own + "evictionHard: {}\n": 0, own + "evictionHard: {}\nmergeDefaultEvictionSettings: true\n": 6} {
		l, err := Parse([]byte(text))
		if err != nil || len(l.Thresholds) != want {
			t.Errorf("%q: %d thresholds, %v, want %d", text, len(l.Thresholds), err, want)
		}
	}
	if d := Default(); d.EvictionHard["memory.available"] != "100Mi" || d.MemoryAvailable != stats.MemoryAvailableLower || !d.Breaker {
		t.Errorf("defaults without a file = %+v, want memory.available 100Mi, lower, breaker", d)
	}
	if l, err := Parse([]byte(own + "evictionPressureTransitionPeriod: 0s\n")); err != nil || l.EvictionPressureTransitionPeriod != Duration(5*time.Minute) {
		t.Errorf("transition period of 0 in a file = %v, %v, want 5m", l, err)
	}
}

// All thresholds are parsed: soft ones, minimum reclaim, and the copies for the cgroup above all
// pods. A value that a kubelet accepts but should not is an error in the agent's file and a warning
// in a kubelet's.
func TestAllThresholds(t *testing.T) {
	text := `
evictionHard: {memory.available: 200Mi}
evictionSoft: {memory.available: 100Mi}
evictionSoftGracePeriod: {memory.available: 1m}
evictionMinimumReclaim: {memory.available: 50Mi}
evictionMaxPodGracePeriod: -1
`
	l, err := Parse([]byte(kubelet + text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range l.Thresholds {
		got = append(got, h.String()+" "+h.Grace.String()+" "+h.MinReclaim.String())
	}
	if want := []string{"memory.available<200Mi 0s 50Mi", "memory.available<100Mi 1m0s 50Mi", "allocatableMemory.available<200Mi 0s 50Mi"}; !slices.Equal(got, want) {
		t.Errorf("thresholds %q, want %q", got, want)
	}
	soft := "evictionSoft: memory.available: soft eviction threshold memory.available<100Mi is never met before the hard one memory.available<200Mi"
	want := []string{
		soft, "evictionMaxPodGracePeriod: -1 is negative: evictions for soft thresholds use a grace period of 1 s",
	}
	if !slices.Equal(l.Warnings, want) {
		t.Errorf("warnings\n got %q\nwant %q", l.Warnings, want)
	}
	if _, err := Parse([]byte(own + text)); err == nil || err.Error() != "5: "+soft {
		t.Errorf("agent's file: error %v, want %q", err, soft)
	}
	l, err = Parse([]byte(own + "enforceNodeAllocatable: [none]\nevictionHard: {swap.available: 5%, memory.pressure.full: 20%/1s}\n"))
	if err != nil || len(l.Thresholds) != 2 || l.Thresholds[0].String() != "memory.pressure.full>20%/1s" {
		t.Errorf("the agent's own signals: error %v, thresholds %v, want two", err, l)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if l, err := Load(t.Context(), file("good.yaml", own)); err != nil || l.Path != filepath.Join(dir, "good.yaml") || l.Kind != KindAgent {
		t.Errorf("load a valid file: got %+v, error %v", l, err)
	}
	bad := file("bad.yaml", own+"x: 1\n")
	for path, want := range map[string]string{
		bad: "config " + bad + `:3: unknown field "x"`,
		filepath.Join(dir, "none.yaml"): "none.yaml: no such file or directory: create it (at least the two lines \"apiVersion: jettison/v1alpha1\" and \"kind: AgentConfiguration\"), " +
			"or omit --config: then the agent reads " + DefaultPath + " if it exists, else it uses the defaults",
		dir: "is a directory",
		file("huge.yaml", strings.Repeat("#\n", maxSize/2+1)): "larger than",
		file("binary.yaml", "\x00\x01\x02"):                   "not YAML",
	} {
		if _, err := Load(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line with %q", path, err, want)
		}
	}
}

// Any file gives an error or a configuration within the time limit, never a panic.
func FuzzParse(f *testing.F) {
	for _, text := range []string{own, kubelet, own + "evictionHard: {memory.available: 1Gi}\n", own + "a: &a [*a]\n", own + "kubeReserved: &a {b: *a}\n", "? [a]\n: b\n", own + "registerWithTaints: [{key: a}, null]\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := Parse(text)
		if err == nil && l.Config == nil || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("parse: got %v, error %q, want a configuration or an error of one line", l, err)
		}
	})
}

// The error of a value that is wrong on this node only names the line that set it.
func TestBlame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(own+"evictionHard:\n  memory.available: 1Gi\n  pid.available: 1Ti\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	wrong := &eviction.FieldError{Field: []string{"evictionHard", "pid.available"}, Err: errors.New("too much")}
	if got, want := l.ErrorAt(wrong).Error(), "config "+path+":5: evictionHard: pid.available: too much"; got != want {
		t.Errorf("blame in a file = %s, want %s", got, want)
	}
	if got, want := (&Loaded{Config: Default()}).ErrorAt(wrong).Error(), "config: evictionHard: pid.available: too much"; got != want {
		t.Errorf("blame without a file = %s, want %s", got, want)
	}
}
