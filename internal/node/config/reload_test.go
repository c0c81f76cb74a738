package config

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// A reload applies changes immediately, except for start fields: these keep their values and are
// listed until the file has the old values again.
func TestReloaded(t *testing.T) {
	parse := func(text string) *Loaded {
		t.Helper()
		l, err := Parse([]byte(own + text))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	running := parse("evictionHard: {memory.available: 100Mi}\nsocket: /a\n")
	for _, c := range []struct{ text, now, later string }{
		{"evictionHard: {memory.available: 100Mi}\nsocket: /a\nkubeReserved: {}\nevictionSoft: {}\n", "", ""},
		{"evictionHard: {memory.available: 200Mi}\nsocket: /b\ngate: false\n", "evictionHard", "gate socket"},
		{"evictionHard: {memory.available: 200Mi}\nsocket: /a\nbreaker: false\n", "breaker", ""}, // after the one before
		{"evictionHard: {memory.available: 200Mi}\nsocket: /a\nbreaker: false\ncontainerLogMaxSize: 1Mi\n", "", "containerLogMaxSize"},
		{"evictionHard: {memory.available: 200Mi}\nsocket: /a\nbreaker: false\ncontainerRuntimeEndpoint: /x\n", "", "containerRuntimeEndpoint"},
	} {
		change := running.Reloaded(parse(c.text))
		if got := strings.Join(change.Now, " ") + "; " + strings.Join(change.NextStart, " "); got != c.now+"; "+c.later {
			t.Errorf("reload of %q: changes %q, want %q now and %q at the next start", c.text, got, c.now, c.later)
		}
		running = change.Loaded
		if running.Socket != "/a" || !running.Gate || running.LogMaxBytes != 10<<20 || running.ContainerRuntimeEndpoint != "unix:///run/containerd/containerd.sock" {
			t.Errorf("reload of %q changed start fields: %+v", c.text, running.Config)
		}
	}
	if got := hardThresholds(running); len(got) != 1 || got[0] != "memory.available<200Mi" || running.Breaker {
		t.Errorf("thresholds after the reloads = %v, breaker %v", got, running.Breaker)
	}
}

// Each field is either a start field or changes immediately; the list below has the latter.
func TestStartFields(t *testing.T) {
	start := map[string]bool{}
	for i := range reflect.TypeFor[Config]().NumField() {
		f := reflect.TypeFor[Config]().Field(i)
		if f.Tag.Get("start") != "" {
			start[f.Tag.Get("yaml")] = true
		}
	}
	want := "bearerTokenFile cgroupRoot containerLogMaxFiles containerLogMaxSize containerRuntimeEndpoint gate imageServiceEndpoint memoryQoS memoryThrottlingFactor " +
		"listen podLogsDir pprof preemption record rootDir runtimeWait socket socketGroup stateDir staticPodPath tlsCertFile tlsPrivateKeyFile writeAllocatable"
	for name := range strings.FieldsSeq(want) {
		if !start[name] {
			t.Errorf("field %s changes immediately, but no reader applies the change", name)
		}
		delete(start, name)
	}
	if len(start) > 0 {
		t.Errorf("start fields that also change immediately: %v", start)
	}
}

// A missing file, and a kubelet that does not run or has an unreadable configuration, do not
// replace the current configuration.
func TestLessThan(t *testing.T) {
	t.Setenv("CONTAINER_RUNTIME_ENDPOINT", "")
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"own.yaml": own})
	file := filepath.Join(dir, "own.yaml")
	with := findOrFail(t, Places{Path: file, ProcMount: kubeletsNode(t)})
	for name, c := range map[string]struct {
		next *Loaded
		want string
	}{
		"the same":                     {with, ""},
		"no kubelet":                   {findOrFail(t, Places{Path: file, ProcMount: nodeProc(t, "bash", nil, nil)}), ErrNoKubelet.Error()},
		"a kubelet that is not wanted": {findOrFail(t, Places{Path: file, ProcMount: nodeProc(t, "kubelet", []string{"--config=/none"}, nil)}), "the previous configuration of the node's kubelet stays in effect: using defaults for fields that " + file},
		"no file":                      {&Loaded{Config: Default(), Kind: KindAgent, Kubelet: true}, "config " + file + " is missing"},
	} {
		err := with.CheckComplete(c.next)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s: LessThan = %v, want %q", name, err, c.want)
		}
		if errors.Is(err, ErrNoKubelet) != (name == "no kubelet") {
			t.Errorf("%s: LessThan = %v, want nil", name, err)
		}
	}
}
