package config

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Invalid fields for admission are errors in both kinds of files, with the kubelet's text and the
// line.
func TestWhatPodsAreTaken(t *testing.T) {
	for text, want := range map[string]string{
		"maxPods: -1\n":                                                       "invalid configuration: maxPods (--max-pods) -1 must not be a negative number",
		"podsPerCore: -2\n":                                                   "invalid configuration: podsPerCore (--pods-per-core) -2 must not be a negative number",
		"allowedUnsafeSysctls: [kernel.msg*]\n":                               "",
		"allowedUnsafeSysctls: [vm.swappiness]\n":                             `the sysctls "vm.swappiness" are not known to be namespaced`,
		"allowedUnsafeSysctls: ['A B']\n":                                     `sysctl "A B" must have at most 253 characters`,
		"registerWithTaints: [{key: a, value: b, effect: NoExecute}]\n":       "",
		"registerWithTaints: [{key: a}]\n":                                    "",
		"registerWithTaints: [{key: a, value: b, effect: No}]\n":              "invalid taint: a=b:No: want an effect of [NoSchedule PreferNoSchedule NoExecute]",
		"registerWithTaints: [{effect: NoExecute}]\n":                         "registerWithTaints: 0: key: invalid taint key: name part must be non-empty",
		"registerWithTaints: [{key: a}, {key: 'dedicated=gpu'}]\n":            "registerWithTaints: 1: key: invalid taint key: name part must consist of",
		"registerWithTaints: [{key: example.com/a, value: 'x y'}]\n":          "registerWithTaints: 0: value: invalid taint value: \"x y\": a valid label must be",
		"registerWithTaints: [{key: a, timeAdded: '2026-01-01T00:00:00Z'}]\n": "taint.TimeAdded is not nil",
	} {
		for _, kind := range []string{own, kubelet} {
			l, err := Parse([]byte(kind + text))
			switch {
			case want == "" && (err != nil || l.Sysctls == nil):
				t.Errorf("%s: error %v, want none", text, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "3: ")):
				t.Errorf("%s: error %v, want %q", text, err, want)
			}
		}
	}
}

// The maximum number of pods follows the number of cores if that is lower, as in a kubelet. A 0
// that a tool writes selects the default.
func TestMaxPods(t *testing.T) {
	for text, want := range map[string]int64{
		"": 110, "maxPods: 0\n": 110, "maxPods: 7\n": 7, "podsPerCore: 10\n": 40, "maxPods: 30\npodsPerCore: 10\n": 30,
	} {
		l, err := Parse([]byte(kubelet + text))
		if err != nil {
			t.Fatal(err)
		}
		if got := l.MaxPodCount(4); got != want {
			t.Errorf("%q: %d pods on four cores, want %d", text, got, want)
		}
	}
}

// Taints of the file are converted to those of the Kubernetes API.
func TestTaints(t *testing.T) {
	l, err := Parse([]byte(own + "registerWithTaints: [{key: a, value: b, effect: NoExecute}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Taints(); len(got) != 1 || got[0] != (v1.Taint{Key: "a", Value: "b", Effect: v1.TaintEffectNoExecute}) {
		t.Errorf("taints = %+v, want those of the file", got)
	}
}

// The node's labels must have the form of the Kubernetes API, because no pod can select any other.
func TestNodeLabels(t *testing.T) {
	for text, want := range map[string]string{
		"nodeLabels: {disk: ssd, example.com/zone: '', kubernetes.io/hostname: n1}\n": "",
		"nodeLabels: {'a b': x}\n":    "3: nodeLabels: a b: invalid label key: name part must consist of",
		"nodeLabels: {'': x}\n":       "invalid label key: name part must be non-empty",
		"nodeLabels: {disk: 'x y'}\n": "3: nodeLabels: disk: invalid label value: \"x y\": a valid label must be",
	} {
		if _, err := Parse([]byte(own + text)); err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// The node's name is trimmed and lowercased, as in a kubelet. A name of spaces only is an error.
func TestHostnameOverride(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "hostnameOverride: ''\n": "", "hostnameOverride: node-1\n": "node-1", "hostnameOverride: Node-1.Example\n": "node-1.example",
		"hostnameOverride: ' node-1 '\n": "node-1",
	} {
		if l, err := Parse([]byte(own + text)); err != nil || l.HostnameOverride != want {
			t.Errorf("%s: error %v, want the name %q", text, err, want)
		}
	}
	if _, err := Parse([]byte(own + "hostnameOverride: '  '\n")); err == nil || err.Error() != "3: hostnameOverride: empty hostname is invalid" {
		t.Errorf("hostnameOverride of spaces: error %v, want one", err)
	}
}

// Preemption is on unless the agent's file disables it. off is YAML for false.
func TestPreemptionCanBeDisabled(t *testing.T) {
	for text, want := range map[string]bool{"": true, "preemption: on\n": true, "preemption: off\n": false, "preemption: false\n": false} {
		if l, err := Parse([]byte(own + text)); err != nil || l.Preemption != want {
			t.Errorf("preemption of %q: got %v, error %v", text, l, err)
		}
	}
	if _, err := Parse([]byte(own + "preemption: never\n")); err == nil || !strings.HasPrefix(err.Error(), "3: ") {
		t.Errorf("preemption: never: error %v, want one", err)
	}
}

// The last flag for taints on a kubelet's command line is used. Its taints are checked as in a
// file.
func TestTaintsOfAFlag(t *testing.T) {
	c, err := parseFlags([]string{"--register-with-taints=a:NoExecute", "--register-with-taints", "dedicated=db:NoExecute,b,x:NoSchedule-,c=:NoSchedule"}, "/")
	if err != nil {
		t.Fatal(err)
	}
	var got []Taint
	if list := valueOf(c.fields, "registerWithTaints"); list == nil || list.Decode(&got) != nil {
		t.Fatalf("no taints in the fields, used flags = %+v", c.used)
	}
	if want := []Taint{{Key: "dedicated", Value: "db", Effect: "NoExecute"}, {Key: "b"}, {Key: "c", Effect: "NoSchedule"}}; !slices.Equal(got, want) {
		t.Errorf("taints = %+v, want %+v", got, want)
	}
	for _, odd := range []string{"a:b:c", "a=b=c:NoExecute"} {
		if _, err := parseFlags([]string{"--register-with-taints=" + odd}, "/"); err == nil || !strings.Contains(err.Error(), "invalid taint spec: "+odd) {
			t.Errorf("taints %s: error %v, want one", odd, err)
		}
	}
}
