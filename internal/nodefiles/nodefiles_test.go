package nodefiles

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"jettison/cgroup"
)

// The archive has what is there, and of mountinfo only what says where cgroups are: other mounts are private.
func TestArchive(t *testing.T) {
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
	archive, err := Archive(Options{Cgroups: fs, ProcMount: filepath.Join(dir, "proc"), SysMount: filepath.Join(dir, "sys")})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range archive.Files {
		if !strings.HasPrefix(f.Name, "cgroup/") {
			got[f.Name] = string(f.Data)
		}
	}
	want := map[string]string{
		"proc/meminfo": "MemTotal: 1 kB\n", "proc/self/mountinfo": "2 1 0:2 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"sys/kernel/mm/lru_gen/enabled": "0x0007\n",
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %q, want %q", name, got[name], text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
}
