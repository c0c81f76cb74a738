package config

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"jettison/eviction"
	"jettison/internal/node/kubeletdetect"
	"jettison/stats"
)

// nodeProc returns the /proc of a node with a kubelet that has this command line and these files
// below its root directory.
func nodeProc(t *testing.T, name string, args []string, files map[string]string) string {
	t.Helper()
	proc := t.TempDir()
	writeFiles(t, proc, map[string]string{
		"1/comm": "systemd\n", "1/cgroup": "0::/init.scope\n", "1/net/tcp": "header\n", "1/net/tcp6": "header\n",
		"812/comm": name + "\n", "812/cgroup": "0::/system.slice/kubelet.service\n", "812/status": "Uid:\t0\t0\t0\t0\n",
		"812/cmdline": strings.Join(append([]string{"/usr/bin/" + name}, args...), "\x00") + "\x00", "812/root/etc/hosts": "",
	})
	writeFiles(t, filepath.Join(proc, "812/root"), files)
	if err := os.Symlink("/srv", filepath.Join(proc, "812/cwd")); err != nil {
		t.Fatal(err)
	}
	return proc
}

// Without a file, the configuration of the node's kubelet is loaded, and From names its parts.
func TestFindKubeletConfiguration(t *testing.T) {
	if _, err := os.Stat(DefaultPath); err == nil {
		t.Skip("this machine has " + DefaultPath)
	}
	const file = "/var/lib/kubelet/config.yaml"
	config := func(text string) map[string]string { return map[string]string{file: kubelet + text} }
	defaultHard := strings.Join(hardThresholds(&Loaded{Config: &Config{EvictionHard: eviction.DefaultHard()}}), " ")
	for _, c := range []struct {
		name  string
		args  []string
		files map[string]string
		hard  string
		from  string // "!": the warning in addition to the defaults
	}{
		{"its file", []string{"--config=" + file, "-v=2"}, config("evictionHard: {memory.available: 300Mi}\n"), "memory.available<300Mi", file},
		{"of two words", []string{"-v", "4", "--fail-swap-on", "--config", file}, config("evictionHard: {memory.available: 300Mi}\n"), "memory.available<300Mi", file},
		{"relative to where it runs", []string{"--config=k.yaml"}, map[string]string{"srv/k.yaml": kubelet + "evictionHard: {}\n"}, "", "/srv/k.yaml"},
		{"its default", []string{"--config=" + file}, config(""), defaultHard, file},
		{"drop-ins", []string{"--config=" + file, "--config-dir=/etc/kubelet.d"}, map[string]string{
			file: kubelet + "evictionHard: {memory.available: 1Gi}\n", "/etc/kubelet.d/10.conf": kubelet + "evictionHard: {memory.available: 300Mi}\n",
		}, "memory.available<300Mi", file + ", /etc/kubelet.d/10.conf"},
		{"flags over all", []string{"--config=" + file, "--eviction-hard=memory.available<300Mi", "--eviction_hard", "nodefs.available<1%"},
			config("evictionHard: {memory.available: 1Gi, imagefs.available: 1%}\nmergeDefaultEvictionSettings: true\n"),
			"memory.available<300Mi nodefs.available<1%", file + ", --eviction-hard"},
		{"a flag that switches all off", []string{"--config=" + file, "--eviction-hard="}, config(""), "", "--eviction-hard"},
		{"neither", []string{"--kubeconfig=/etc/k"}, nil, defaultHard, "no file and no flag"},
		{"a link of its own root", []string{"--config=/link"}, config("evictionHard: {}\n"), "", "/link"},
		{"no file there", []string{"--config=/none"}, nil, defaultHard, "!kubelet, process 812: open the host's /none: no such file"},
		{"a wrong one", []string{"--config=" + file}, config("evictionHard: {memory.available: 1Mx}\n"), defaultHard, "!config " + file + ":3: evictionHard: memory"},
		{"no kubelet's", []string{"--config=" + file}, map[string]string{file: own}, defaultHard, "!config " + file + ":2: apiVersion"},
		{"a wrong flag", []string{"--eviction-hard=memory.available"}, nil, defaultHard, "!--eviction-hard \"memory.available\": want KEY<VALUE"},
		{"a wrong value of a flag", []string{"--eviction-hard=memory.available<1Mx"}, nil, defaultHard, "!config flags:1: evictionHard: memory.available: quantities"},
	} {
		t.Run(c.name, func(t *testing.T) {
			proc := nodeProc(t, "kubelet", c.args, c.files)
			if err := os.Symlink(file, filepath.Join(proc, "812/root/link")); err != nil {
				t.Fatal(err)
			}
			l, err := Find(t.Context(), Places{ProcMount: proc})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(hardThresholds(l), " "); got != c.hard {
				t.Errorf("evictionHard = %q, want %q", got, c.hard)
			}
			warned := strings.Join(l.Warnings, "\n")
			if want, fails := strings.CutPrefix(c.from, "!"); fails {
				if l.From != "defaults" || !strings.Contains(warned, want) || strings.Contains(warned, "\n") {
					t.Errorf("layers %q, warnings %q, want defaults and %q", l.From, warned, want)
				}
			} else if !strings.HasPrefix(l.From, "the kubelet, process 812: ") || !strings.HasSuffix(l.From, c.from) || warned != "" {
				t.Errorf("layers %q, warnings %q, want %q without warnings", l.From, warned, c.from)
			}
			if l.MemoryAvailable != stats.MemoryAvailableLower || !l.Breaker {
				t.Errorf("memoryAvailable %v, breaker %v, want the agent's defaults", l.MemoryAvailable, l.Breaker)
			}
		})
	}
}

// rke2 starts a kubelet as a child process: the child's flags are used, although rke2 is the older
// process.
func TestKubeletAsChildOfRKE2(t *testing.T) {
	if _, err := os.Stat(DefaultPath); err == nil {
		t.Skip("this machine has " + DefaultPath)
	}
	proc := nodeProc(t, "kubelet", []string{"--eviction-hard=nodefs.available<5%"}, nil)
	writeFiles(t, proc, map[string]string{
		"700/comm": "rke2\n", "700/cgroup": "0::/system.slice/rke2-server.service\n", "700/status": "Uid:\t0\t0\t0\t0\n",
		"700/cmdline": "/usr/local/bin/rke2 server\x00",
	})
	l, err := Find(t.Context(), Places{ProcMount: proc})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(hardThresholds(l), " ")
	if got != "nodefs.available<5%" || len(l.Warnings) > 0 || !strings.HasPrefix(l.From, "the kubelet, process 812") {
		t.Errorf("evictionHard %q from %q, warnings %q, want the child's flags", got, l.From, l.Warnings)
	}
}

// Every flag of kubeletFlags sets its field.
func TestKubeletFlags(t *testing.T) {
	proc := nodeProc(t, "kubelet", []string{
		"--root-dir=data", "--pod-manifest-path=manifests", "--image-gc-high-threshold=90", "--image-gc-low-threshold", "70",
		"--minimum-image-ttl-duration=3m", "--enforce-node-allocatable=none", "--local-storage-capacity-isolation=false",
		"--container-runtime-endpoint=unix:///run/crio/crio.sock", "--container-log-max-size=1Mi", "--container-log-max-files=3", "--cgroup-driver=systemd",
		"--cgroup-root=/x", "--minimum-container-ttl-duration=1m", "--maximum-dead-containers=7", "--maximum-dead-containers-per-container=2",
		"--eviction-soft=memory.available<1Gi", "--eviction-soft-grace-period=memory.available=30s", "--eviction-max-pod-grace-period=60",
		"--eviction-minimum-reclaim=memory.available=10Mi", "--eviction-pressure-transition-period=30s", "--image-service-endpoint=/run/i.sock",
		"--", "--cgroup-root=/y",
	}, nil)
	l, err := Find(t.Context(), Places{ProcMount: proc})
	if err != nil || len(l.Warnings) > 0 {
		t.Fatal(err, l.Warnings)
	}
	if got := l.Config; got.RootDir != "/srv/data" || got.StaticPodPath != "/srv/manifests" || got.ContainerGC.MaxContainers != 7 ||
		got.ContainerGC.MaxPerPodContainer != 2 ||
		got.ImageGCHighThresholdPercent != 90 || got.ImageGCLowThresholdPercent != 70 || got.ImageMinimumGCAge.String() != "3m0s" ||
		len(got.EnforceNodeAllocatable) != 1 || got.EnforceNodeAllocatable[0] != "none" || got.LocalStorageCapacityIsolation ||
		got.ContainerRuntimeEndpoint != "unix:///run/crio/crio.sock" || got.ContainerLogMaxSize != "1Mi" || got.ContainerLogMaxFiles != 3 ||
		got.CgroupDriver != "systemd" || got.CgroupRoot != "/x" || got.ContainerGC.MinAge.String() != "1m0s" ||
		got.EvictionSoft["memory.available"] != "1Gi" || got.EvictionSoftGracePeriod["memory.available"] != "30s" ||
		got.EvictionMaxPodGracePeriod != 60 || got.EvictionMinimumReclaim["memory.available"] != "10Mi" ||
		got.EvictionPressureTransitionPeriod.String() != "30s" || got.ImageServiceEndpoint != "/run/i.sock" {
		t.Errorf("configuration of the flags = %+v", got)
	}
}

// The error about a flag that sets no field of the file names what the flag accepts.
func TestInvalidKubeletFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--minimum-container-ttl-duration=60":         `--minimum-container-ttl-duration "60": want a duration such as "1m30s"`,
		"--maximum-dead-containers=many":              `--maximum-dead-containers "many": want a whole number of at most 32 bits`,
		"--maximum-dead-containers-per-container=9e9": `--maximum-dead-containers-per-container "9e9": want a whole number of at most 32 bits`,
	} {
		c, err := parseFlags([]string{flag}, "/")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.finish(new(Config)); err == nil || err.Error() != want {
			t.Errorf("error about %s = %v, want %s", flag, err, want)
		}
	}
}

// If a file is named, or no kubelet's configuration can be found, the warning reports it.
func TestNoKubeletConfiguration(t *testing.T) {
	if _, err := os.Stat(DefaultPath); err == nil {
		t.Skip("this machine has " + DefaultPath)
	}
	proc := nodeProc(t, "k3s", []string{"server"}, nil)
	if l, err := Find(t.Context(), Places{ProcMount: proc}); err != nil || l.From != "defaults" || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "k3s, process 812") {
		t.Errorf("node with k3s: got %+v, error %v, want the defaults and a warning", l, err)
	}
	writeFiles(t, proc, map[string]string{"812/status": "Uid:\t1000\t1000\t1000\t1000\n"}) // another user's process of this name
	if l, err := Find(t.Context(), Places{ProcMount: proc}); err != nil || l.From != "defaults" || len(l.Warnings) != 0 {
		t.Errorf("k3s of another user: got %+v, error %v, want the defaults without a warning", l, err)
	}
	file := filepath.Join(proc, "own.yaml")
	writeFiles(t, proc, map[string]string{"own.yaml": own, "812/status": "Uid:\t0\t0\t0\t0\n"})
	if l, err := Find(t.Context(), Places{Path: file, ProcMount: proc}); err != nil || l.From != file || len(l.Warnings) != 1 {
		t.Errorf("named file with k3s: got %+v, error %v, want the file and a warning", l, err)
	}
	if l, err := Find(t.Context(), Places{ProcMount: filepath.Join(proc, "none")}); err != nil || l.From != "defaults" || len(l.Warnings) != 1 {
		t.Errorf("unreadable /proc: got %+v, error %v, want the defaults and a warning", l, err)
	}
}

func FuzzFlags(f *testing.F) {
	f.Add("--eviction-hard=a<b\x00--config\x00x")
	f.Add("-v\x00--\x00--config-dir=\x00=")
	f.Fuzz(func(t *testing.T, line string) {
		c, err := parseFlags(strings.Split(line, "\x00"), "/")
		if err == nil {
			for name, value := range c.other {
				if strings.HasPrefix(name, "config") && value != "" && !filepath.IsAbs(value) {
					t.Errorf("flag %s has the relative path %q", name, value)
				}
			}
		}
	})
}

// Find waits for a kubelet that ran before and is down when the agent starts; otherwise the
// defaults would stay in effect. A kubelet that does not start in time is a warning. A node that
// never had a kubelet does not wait.
func TestFindWaitsForKubelet(t *testing.T) {
	if _, err := os.Stat(DefaultPath); err == nil {
		t.Skip("this machine has " + DefaultPath)
	}
	const file = "/var/lib/kubelet/config.yaml"
	for _, c := range []struct{ seen, comes bool }{{true, true}, {true, false}, {false, false}} {
		proc := nodeProc(t, "kubelet", []string{"--config=" + file}, map[string]string{file: kubelet + "evictionHard: {memory.available: 300Mi}\n"})
		state, here, away := t.TempDir(), filepath.Join(proc, "812"), filepath.Join(t.TempDir(), "812")
		if c.seen {
			p, err := kubeletdetect.OpenPresence(kubeletdetect.PresenceOptions{ProcMount: proc, StateDir: state})
			if err != nil {
				t.Fatal(err)
			}
			if found, why := p.Look(); !found {
				t.Fatal(why)
			}
			p.Save()
		}
		if err := os.Rename(here, away); err != nil {
			t.Fatal(err)
		}
		var waits []string
		places := Places{ProcMount: proc, StateDir: state, Wait: 100 * time.Millisecond, Waiting: func(why string) { waits = append(waits, why) }}
		done := make(chan struct{})
		if c.comes {
			places.Wait = 10 * time.Second
			places.Waiting = func(why string) { // the kubelet returns during the wait
				waits = append(waits, why)
				go func() { defer close(done); _ = os.Rename(away, here) }()
			}
		} else {
			close(done)
		}
		l, err := Find(t.Context(), places)
		if c.seen && len(waits) == 0 {
			t.Fatal("Waiting was not called before the wait for the kubelet")
		}
		<-done
		if err != nil {
			t.Fatal(err)
		}
		warned := strings.Contains(strings.Join(l.Warnings, " "), "no kubelet process within")
		if own := strings.Contains(strings.Join(hardThresholds(l), " "), "memory.available<300Mi"); own != c.comes || warned != (c.seen && !c.comes) {
			t.Errorf("find with %+v: layers %q, thresholds %v, warnings %q", c, l.From, hardThresholds(l), l.Warnings)
		}
		if waited := len(waits) == 1 && strings.Contains(waits[0], "a kubelet was seen less than"); waited != c.seen {
			t.Errorf("%+v: reasons of the wait = %q", c, waits)
		}
	}
}

// With the default configuration, AwaitKubelet returns a kubelet that starts later, once its configuration
// can be loaded.
func TestLater(t *testing.T) {
	const file = "/var/lib/kubelet/config.yaml"
	synctest.Test(t, func(t *testing.T) {
		proc := nodeProc(t, "kubelet", []string{"--config=" + file}, map[string]string{file: kubelet + "evictionHard: {memory.available: 1Mx}\n"})
		here, away := filepath.Join(proc, "812"), filepath.Join(t.TempDir(), "812")
		steps := []func() error{
			func() error { return os.Rename(here, away) },
			func() error { return os.Rename(away, here) },
			func() error {
				return os.WriteFile(filepath.Join(here, "root", file), []byte(kubelet+"evictionHard: {memory.available: 300Mi}\n"), 0o600)
			},
		}
		if err := steps[0](); err != nil {
			t.Fatal(err)
		}
		for _, come := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			found := make(chan *Loaded, 1)
			go func() { found <- AwaitKubelet(ctx, proc) }()
			time.Sleep(10 * time.Minute) // in fake time
			if !come {
				cancel()
				if l := <-found; l != nil {
					t.Errorf("Later without a kubelet = %+v, want nil", l)
				}
				continue
			}
			for i, step := range steps[1:] {
				if err := step(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Hour)
				if last := i == len(steps)-2; len(found) > 0 != last {
					t.Errorf("after step %d, Later returned = %v", i+1, len(found) > 0)
				}
			}
			cancel() // ends AwaitKubelet if it did not return
			if l := <-found; l == nil || !slices.Contains(hardThresholds(l), "memory.available<300Mi") {
				t.Errorf("Later = %+v, want the kubelet's thresholds", l)
			}
		}
	})
}
