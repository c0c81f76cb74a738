package config

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// What another file says holds at once, but for what is read at the start: that stays, and is named, until the file says again what holds.
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
			t.Errorf("%q: %q, want %q; %q", c.text, got, c.now, c.later)
		}
		running = change.Loaded
		if running.Socket != "/a" || !running.Gate || running.LogMaxBytes != 10<<20 || running.ContainerRuntimeEndpoint != "unix:///run/containerd/containerd.sock" {
			t.Errorf("%q: what was read at the start is another now: %+v", c.text, running.Config)
		}
	}
	if got := hard(running); len(got) != 1 || got[0] != "memory.available<200Mi" || running.Breaker {
		t.Errorf("%v, breaker %v", got, running.Breaker)
	}
}

// Each field is read at the start, or else changes at once: what a field of the start alone is for is on no list here.
func TestEveryFieldIsOfOneKind(t *testing.T) {
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
			t.Errorf("%s changes at once, and nobody takes it", name)
		}
		delete(start, name)
	}
	if len(start) > 0 {
		t.Errorf("read at the start, and changeable: %v", start)
	}
}

// A file that is gone, and a kubelet that is not there or whose configuration cannot be taken, are no policy.
func TestWhatIsLessThanBefore(t *testing.T) {
	t.Setenv("CONTAINER_RUNTIME_ENDPOINT", "")
	dir := t.TempDir()
	put(t, dir, map[string]string{"own.yaml": own})
	file := filepath.Join(dir, "own.yaml")
	with := found(t, Places{Path: file, ProcMount: kubeletsNode(t)})
	for name, c := range map[string]struct {
		next *Loaded
		want string
	}{
		"the same":                     {with, ""},
		"no kubelet":                   {found(t, Places{Path: file, ProcMount: nodeProc(t, "bash", nil, nil)}), ErrNoKubelet.Error()},
		"a kubelet that is not wanted": {found(t, Places{Path: file, ProcMount: nodeProc(t, "kubelet", []string{"--config=/none"}, nil)}), "what the node's kubelet went by holds still: what " + file},
		"no file":                      {&Loaded{Config: Default(), Kind: KindAgent, Kubelet: true}, "config " + file + " is not there any more"},
	} {
		err := with.LessThan(c.next)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if errors.Is(err, ErrNoKubelet) != (name == "no kubelet") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
