package oomkillers

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Find detects killers by process name and by script name. One agent is not a rival, two agents are.
func TestFind(t *testing.T) {
	proc := t.TempDir()
	process := func(pid string, args ...string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(strings.Join(args, "\x00")+"\x00"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want ...string) {
		t.Helper()
		found, err := Find(proc)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range found {
			if got = append(got, r.Name); r.PID == 0 || r.Why == "" || r.Do == "" {
				t.Errorf("rival without pid, why or do: %+v", r)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("rivals = %q, want %q", got, want)
		}
	}
	process("1", "/sbin/init")
	process("2")
	process("self", "earlyoom")
	process("30", "/usr/bin/grep", "earlyoom")
	process("31", "/usr/bin/jettison", "run", "--dry-run")
	process("32", "jettison", "check")
	want()
	process("40", "/usr/lib/systemd/systemd-oomd")
	process("41", "/usr/bin/python3", "-u", "/usr/sbin/nohang", "--monitor")
	process("42", "/usr/bin/earlyoom", "-r", "3600")
	want("earlyoom", "nohang", "systemd-oomd")
	process("43", "/jettison", "run")
	want("earlyoom", "jettison run", "jettison run", "nohang", "systemd-oomd")
	if _, err := Find(filepath.Join(proc, "none")); err == nil {
		t.Error("Find without /proc returned no error")
	}
}

// A process of a pod may have any name: Find reports its pod, once for each pod and name.
func TestProcessesOfPods(t *testing.T) {
	proc := t.TempDir()
	process := func(pid, cgroup string, args ...string) {
		t.Helper()
		for name, text := range map[string]string{"cmdline": strings.Join(args, "\x00") + "\x00", "cgroup": "1:name=x:/y\n0::" + cgroup + "\n"} {
			path := filepath.Join(proc, pid, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	const systemd = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podaaaaaaaa_0000_4000_8000_000000000001.slice/cri-containerd-1.scope"
	const plain = "/../../burstable/podaaaaaaaa-0000-4000-8000-000000000002/1" // as seen from another cgroup namespace
	for _, pid := range []string{"40", "41", "42"} {
		process(pid, systemd, "systemd-oomd")
	}
	process("46", "/../kubepods-burstable-podaaaaaaaa_0000_4000_8000_000000000003.slice/cri-containerd-2.scope", "earlyoom")
	process("47", "/../../podaaaaaaaa-0000-4000-8000-000000000004/2", "nohang")
	process("48", "/podman.slice/x", "oomd")
	process("43", "/system.slice/systemd-oomd.service", "/usr/lib/systemd/systemd-oomd")
	process("44", plain, "jettison", "run")
	process("45", "/system.slice/jettison.service", "/usr/bin/jettison", "run")
	found, err := Find(proc)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range found {
		got = append(got, r.Name+" of "+r.Pod)
		if host := r.Pod == ""; host == (r.Why == inPod.Why) {
			t.Errorf("advice for a pod given = %v, want %v: %+v", host, !host, r)
		}
	}
	want := []string{
		"systemd-oomd of aaaaaaaa-0000-4000-8000-000000000001", "systemd-oomd of ",
		"earlyoom of aaaaaaaa-0000-4000-8000-000000000003", "nohang of aaaaaaaa-0000-4000-8000-000000000004", "oomd of ",
		"jettison run of aaaaaaaa-0000-4000-8000-000000000002",
		"jettison run of ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rivals = %q, want %q", got, want)
	}
}
