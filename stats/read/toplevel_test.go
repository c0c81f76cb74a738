package read

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"jettison/cgroup"
)

// TopLevel lists the units in slices individually, and no pods.
func TestTopLevelNamesUnitsAndNoPods(t *testing.T) {
	dir := t.TempDir()
	for path, current := range map[string]string{
		"": "", "init.scope": "1\n", "leak": "2\n", "system.slice": "30\n", "system.slice/leak.service": "20\n", "system.slice/other.service": "10\n",
		"user.slice": "4\n", "kubepods": "500\n", "kubepods/besteffort": "500\n", "unlimited.slice": "", "broken": "many\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
		if current != "" {
			if err := os.WriteFile(filepath.Join(dir, path, "memory.current"), []byte(current), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	fs, err := cgroup.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	c, err := NewReader(fs, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := map[string]uint64{}
	err = c.TopLevel(func(path string, bytes uint64) { got[path] = bytes })
	want := map[string]uint64{"init.scope": 1, "leak": 2, "system.slice/leak.service": 20, "system.slice/other.service": 10, "user.slice": 4}
	if !maps.Equal(got, want) || err == nil {
		t.Errorf("top-level groups = %v, error %v; want %v and an error for the broken one", got, err, want)
	}
}
