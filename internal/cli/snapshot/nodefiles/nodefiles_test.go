package nodefiles

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"jettison/cgroup"
)

// Walk visits existing files. Of mountinfo it keeps only the cgroup lines, because other mounts are private.
func TestWalk(t *testing.T) {
	fs, err := cgroup.Open("")
	if err != nil {
		t.Skip("no cgroup v2 here:", err)
	}
	defer fs.Close()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"proc/meminfo":                     "MemTotal: 1 kB\n",
		"proc/self/mountinfo":              "1 1 0:1 / /secret rw - ext4 /dev/vda rw\n2 1 0:2 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"proc/self/environ":                "SECRET=1",
		"sys/kernel/mm/lru_gen/enabled":    "0x0007\n",
		"sys/kernel/mm/lru_gen/min_ttl_ms": "0\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Cgroups: fs, ProcMount: filepath.Join(dir, "proc"), SysMount: filepath.Join(dir, "sys")}
	got := map[string]string{}
	err = Walk(o, func(name string, content []byte) error {
		if !strings.HasPrefix(name, "cgroup/") {
			got[name] = string(content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"proc/meminfo": "MemTotal: 1 kB\n", "proc/self/mountinfo": "2 1 0:2 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"sys/kernel/mm/lru_gen/enabled": "0x0007\n",
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("content of %s = %q, want %q", name, got[name], text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("visited files = %v, want only %v", got, want)
	}
	full, calls := errors.New("full"), 0
	if err := Walk(o, func(string, []byte) error { calls++; return full }); !errors.Is(err, full) || calls != 1 {
		t.Errorf("visit was called %d times with error %v, want once and errFull", calls, err)
	}
}
