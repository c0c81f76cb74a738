package rivals

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Other killers are found by their names, an interpreter's script too; one agent is no rival, two are.
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
				t.Errorf("%+v", r)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
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
		t.Error("no /proc, and no error")
	}
}
