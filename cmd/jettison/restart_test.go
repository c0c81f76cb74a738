package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"jettison/internal/agent"
	"jettison/internal/node/config"
)

// A kubelet appears on a node with the default configuration: the agent restarts. It does not restart if it knew the kubelet at its start.
func TestRestartForKubelet(t *testing.T) {
	const file = "/var/lib/kubelet/config.yaml"
	for _, c := range []struct {
		from           string
		appears, known bool
	}{{config.FromDefaults, true, false}, {config.FromDefaults, false, true}, {"/etc/jettison/config.yaml", true, true}} {
		synctest.Test(t, func(t *testing.T) {
			proc := t.TempDir()
			files := map[string]string{"1/comm": "systemd\n", "1/cgroup": "0::/init.scope\n", "1/net/tcp": "header\n", "1/net/tcp6": "header\n"}
			if c.appears {
				for name, text := range map[string]string{
					"comm": "kubelet\n", "cgroup": "0::/system.slice/kubelet.service\n", "status": "Uid:\t0\t0\t0\t0\n",
					"cmdline": "/usr/bin/kubelet\x00--config=" + file + "\x00", "cwd/x": "",
					"root" + file: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
				} {
					files["812/"+name] = text
				}
			}
			for name, text := range files {
				name = filepath.Join(proc, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o := agent.Options{Config: &config.Loaded{From: c.from, Kind: config.KindAgent, Kubelet: c.known}, ProcMount: proc, Log: slog.New(slog.NewTextHandler(&log, nil))}
			until, appeared := watchForKubelet(ctx, o)
			time.Sleep(10 * time.Minute) // on the test's clock
			if ended := until.Err() != nil; ended == c.known {
				t.Errorf("%+v: context ended = %v, want %v", c, ended, !c.known)
			}
			cancel()
			<-until.Done()
			if got := appeared(); got == c.known || strings.Contains(log.String(), "kubelet detected, restarting") == c.known {
				t.Errorf("%+v: appeared = %v, want %v; log: %s", c, got, !c.known, log.String())
			}
		})
	}
}

// restart keeps the process ID.
func TestRestart(t *testing.T) {
	const stage = "JETTISON_TEST_STAGE"
	switch os.Getenv(stage) {
	case "first":
		fmt.Println("process", os.Getpid())
		t.Setenv(stage, "second")
		t.Fatal(restart())
	case "second":
		fmt.Println("process", os.Getpid())
		os.Exit(0)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestRestart$")
	cmd.Env = append(os.Environ(), stage+"=first")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	want := ""
	if cmd.Process != nil {
		want = strings.Repeat(fmt.Sprintln("process", cmd.Process.Pid), 2)
	}
	if err != nil || string(out) != want {
		t.Errorf("restarted process prints %q with error %v, want %q", out, err, want)
	}
}
