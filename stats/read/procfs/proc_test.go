package procfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestPIDsAndStat(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file("meminfo", "")
	p, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	buf := make([]byte, 4096)
	if _, _, err := p.PIDs(buf); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("PIDs without loadavg: error %v", err)
	}
	file("loadavg", "0.20 0.18 0.12 1/80 11206\n")
	file("sys/kernel/pid_max", "4194304\n")
	file("sys/kernel/threads-max", "7659\n")
	if current, limit, err := p.PIDs(buf); current != 80 || limit != 7659 || err != nil {
		t.Errorf("tasks = %d of limit %d, error %v", current, limit, err)
	}
	file("sys/kernel/pid_max", "1000\n")
	if _, limit, err := p.PIDs(buf); limit != 1000 || err != nil {
		t.Errorf("limit from threads-max = %d, error %v", limit, err)
	}
	file("stat", "cpu  1 2 3\ncpu0 1 2\ncpu1 1 2\nintr 5\nbtime 1700000000\n")
	if cpus, boot, err := p.Stat(); cpus != 2 || !boot.Equal(time.Unix(1700000000, 0)) || err != nil {
		t.Errorf("Stat returned %d CPUs since %v, error %v", cpus, boot, err)
	}
	file("stat", "intr 5\n")
	if _, _, err := p.Stat(); !errors.Is(err, ErrMalformed) {
		t.Errorf("Stat without a cpu line: error %v", err)
	}
}

func FuzzParseLoadAvgTasks(f *testing.F) {
	f.Add([]byte("0.20 0.18 0.12 1/80 11206\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := ParseLoadAvgTasks(b); err != nil && (v != 0 || !errors.Is(err, ErrMalformed)) {
			t.Errorf("ParseLoadAvgTasks returned %d with error %v", v, err)
		}
	})
}
