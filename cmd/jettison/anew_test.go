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

// A kubelet comes on a node where the defaults hold: the agent ends, and is to begin anew. Told to end before, or by a configuration of its
// own, it is not.
func TestTheAgentEndsForAKubeletThatComes(t *testing.T) {
	const file = "/var/lib/kubelet/config.yaml"
	for _, c := range []struct {
		from        string
		comes, told bool
	}{{config.FromDefaults, true, false}, {config.FromDefaults, false, true}, {"/etc/jettison/config.yaml", true, true}} {
		synctest.Test(t, func(t *testing.T) {
			proc := t.TempDir()
			files := map[string]string{"1/comm": "systemd\n", "1/cgroup": "0::/init.scope\n", "1/net/tcp": "header\n", "1/net/tcp6": "header\n"}
			if c.comes {
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
			o := agent.Options{Config: &config.Loaded{From: c.from, Kind: config.KindAgent, Kubelet: c.told}, ProcMount: proc, Log: slog.New(slog.NewTextHandler(&log, nil))}
			until, came := untilKubelet(ctx, o)
			time.Sleep(10 * time.Minute) // by the clock of the test
			if ended := until.Err() != nil; ended == c.told {
				t.Errorf("%+v: ended %v", c, ended)
			}
			cancel()
			<-until.Done()
			if got := came(); got == c.told || strings.Contains(log.String(), "begins anew") == c.told {
				t.Errorf("%+v: came %v, log %s", c, got, log.String())
			}
		})
	}
}

// It is the same process then.
func TestAnew(t *testing.T) {
	const life = "JETTISON_TEST_LIFE"
	switch os.Getenv(life) {
	case "first":
		fmt.Println("process", os.Getpid())
		t.Setenv(life, "second")
		t.Fatal(anew())
	case "second":
		fmt.Println("process", os.Getpid())
		os.Exit(0)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestAnew$")
	cmd.Env = append(os.Environ(), life+"=first")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	want := ""
	if cmd.Process != nil {
		want = strings.Repeat(fmt.Sprintln("process", cmd.Process.Pid), 2)
	}
	if err != nil || string(out) != want {
		t.Errorf("%v, %q, want %q", err, out, want)
	}
}
