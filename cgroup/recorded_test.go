package cgroup

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

// recordedTree unpacks the recording of a kernel, or its files that all of keep accept, and
// returns the directory with cgroup, proc and sys.
func recordedTree(t testing.TB, kernel string, keep ...func(name string) bool) (dir string, cgroups *FS) {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/" + kernel + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for _, f := range archive.Files {
		if slices.ContainsFunc(keep, func(keep func(string) bool) bool { return !keep(f.Name) }) {
			continue
		}
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if cgroups, err = OpenTree(filepath.Join(dir, "cgroup")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cgroups.Close() })
	return dir, cgroups
}

// recordedGroups returns the paths of all groups of a recorded tree.
func recordedGroups(t testing.TB, cgroups *FS) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(cgroups.Mount(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			paths = append(paths, strings.Trim(strings.TrimPrefix(path, cgroups.Mount()), "/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// readers are all files that a Group reads, with the method that reads each.
var readers = map[string]func(g *Group, buf []byte) (any, error){
	"memory.current":      func(g *Group, buf []byte) (any, error) { return g.MemoryCurrent(buf) },
	"memory.swap.current": func(g *Group, buf []byte) (any, error) { return g.MemorySwapCurrent(buf) },
	"memory.min":          func(g *Group, buf []byte) (any, error) { return g.MemoryMin(buf) },
	"memory.low":          func(g *Group, buf []byte) (any, error) { return g.MemoryLow(buf) },
	"memory.max":          func(g *Group, buf []byte) (any, error) { return g.MemoryMax(buf) },
	"memory.swap.max":     func(g *Group, buf []byte) (any, error) { return g.MemorySwapMax(buf) },
	"memory.events":       func(g *Group, buf []byte) (any, error) { return g.MemoryEvents(buf) },
	"memory.events.local": func(g *Group, buf []byte) (any, error) { return g.MemoryEventsLocal(buf) },
	"memory.stat":         func(g *Group, buf []byte) (any, error) { return read(g.MemoryDetail, buf) },
	"memory.pressure":     func(g *Group, buf []byte) (any, error) { return pressure(g, Memory, buf) },
	"cpu.pressure":        func(g *Group, buf []byte) (any, error) { return pressure(g, CPU, buf) },
	"io.pressure":         func(g *Group, buf []byte) (any, error) { return pressure(g, IO, buf) },
	"cpu.stat":            func(g *Group, buf []byte) (any, error) { return g.CPUUsage(buf) },
	"cpu.weight":          func(g *Group, buf []byte) (any, error) { return g.CPUWeight(buf) },
	"cpu.max":             func(g *Group, buf []byte) (any, error) { return g.CPUMax(buf) },
	"io.stat":             func(g *Group, buf []byte) (any, error) { return read(g.IOStat, buf) },
	"pids.current":        func(g *Group, buf []byte) (any, error) { return g.PIDsCurrent(buf) },
	"cgroup.events":       func(g *Group, buf []byte) (any, error) { return g.Events(buf) },
}

func read[T any](from func([]byte, *T) error, buf []byte) (T, error) {
	var out T
	err := from(buf, &out)
	return out, err
}

func pressure(g *Group, r Resource, buf []byte) (PSIStats, error) {
	return read(func(buf []byte, out *PSIStats) error { return g.Pressure(r, buf, out) }, buf)
}

// Every file of every recorded group parses, and a file that was not recorded is missing: the
// root has few.
func TestEveryRecordedFile(t *testing.T) {
	buf := make([]byte, 8192)
	for _, kernel := range kernels {
		_, cgroups := recordedTree(t, kernel)
		read := map[string]int{}
		for _, path := range recordedGroups(t, cgroups) {
			g := group(t, cgroups, path)
			for name, from := range readers {
				v, err := from(g, buf)
				_, statErr := os.Stat(filepath.Join(cgroups.Mount(), path, name))
				switch {
				case statErr == nil && err == nil:
					read[name]++
				case statErr == nil:
					t.Errorf("parsing a file recorded on %s failed: %v", kernel, err)
				case !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrVanished):
					t.Errorf("%s: /%s/%s: %v, %v, want os.ErrNotExist", kernel, path, name, v, err)
				}
			}
		}
		for name := range readers {
			if read[name] == 0 {
				t.Errorf("recording of kernel %s has no file %s", kernel, name)
			}
		}
	}
}

// The limits that vm.NewPod gave the guaranteed pod, as the runtime wrote them.
func TestRecordedGuaranteedPod(t *testing.T) {
	buf := make([]byte, 8192)
	for _, kernel := range kernels {
		_, cgroups := recordedTree(t, kernel)
		var pod string
		err := cgroups.Children("kubepods", buf, func(name string) {
			if strings.HasPrefix(name, "pod") {
				pod = "kubepods/" + name
			}
		})
		if err != nil || pod == "" {
			t.Fatalf("kernel %s: guaranteed pod %q, error %v", kernel, pod, err)
		}
		limited := 0
		for _, path := range recordedGroups(t, cgroups) {
			if !strings.HasPrefix(path, pod+"/") {
				continue
			}
			g := group(t, cgroups, path)
			limit, err := g.MemoryMax(buf)
			if err != nil || limit.Unlimited {
				continue // the pause container
			}
			limited++
			limitCPU, err := g.CPUMax(buf)
			if limit.Bytes != 96<<20 || err != nil || limitCPU.Period != 100*time.Millisecond || limitCPU.Unlimited {
				t.Errorf("kernel %s: container %s: memory.max %+v, cpu.max %+v, error %v", kernel, path, limit, limitCPU, err)
			}
			current, err := g.MemoryCurrent(buf)
			if err != nil || current < 32<<20 || current > limit.Bytes {
				t.Errorf("kernel %s: container %s: memory.current %d, error %v", kernel, path, current, err)
			}
		}
		if limited != 1 {
			t.Errorf("%s: %d containers with a limit, want 1", kernel, limited)
		}
	}
}

// The values read from the recorded root equal those in its files.
func TestRecordedRoot(t *testing.T) {
	buf := make([]byte, 8192)
	for _, kernel := range kernels {
		dir, cgroups := recordedTree(t, kernel)
		g := group(t, cgroups, "")
		text := func(name string) []byte {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		usage, err := g.CPUUsage(buf)
		if want := value(t, text("cgroup/cpu.stat"), "usage_usec"); err != nil || usage.Microseconds() != int64(want) {
			t.Errorf("kernel %s: CPU usage %v, error %v, want %d µs", kernel, usage, err, want)
		}
		if want := value(t, text("cgroup/cgroup.stat"), "nr_descendants"); int(want) != len(recordedGroups(t, cgroups))-1 {
			t.Errorf("%s: %d groups recorded below the root, want %d", kernel, len(recordedGroups(t, cgroups))-1, want)
		}
		p, err := pressure(g, CPU, buf)
		if err != nil || !p.HasSome || !p.HasFull || p.Some.Total <= 0 || p.Some.Avg10 <= 0 || p.Full.Total != 0 {
			t.Errorf("%s: %+v, %v: the root's cpu.pressure has a full line that is always 0", kernel, p, err)
		}
		for _, name := range []string{"memory", "cpu", "io"} {
			var s PSIStats
			if err := ParsePSI(text("proc/pressure/"+name), &s); err != nil || !s.HasSome {
				t.Errorf("kernel %s: node pressure of %s = %+v, error %v", kernel, name, s, err)
			}
		}
		io, err := read(g.IOStat, buf)
		if err != nil || io.ReadBytes == 0 || io.WriteBytes == 0 {
			t.Errorf("kernel %s: IO of the root = %+v, error %v", kernel, io, err)
		}
	}
}

// Vanished, missing, "max" and 0 give four different results for every file.
func TestFourAnswers(t *testing.T) {
	buf := make([]byte, 8192)
	zero := map[string]string{
		"memory.stat":        "anon 0\nfile 0\nshmem 0\ninactive_file 0\n",
		"memory.events":      "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
		"memory.swap.events": "max 0\nfail 0\n",
		"memory.pressure":    "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"cpu.stat":           "usage_usec 0\nuser_usec 0\nsystem_usec 0\n",
		"cpu.max":            "0 100000\n",
		"io.stat":            "8:0 rbytes=0\n",
		"pids.events":        "max 0\n",
		"cgroup.stat":        "nr_descendants 0\nnr_dying_descendants 0\n",
		"cgroup.events":      "populated 0\n",
	}
	zero["memory.events.local"], zero["cpu.pressure"], zero["io.pressure"] = zero["memory.events"], zero["memory.pressure"], zero["memory.pressure"]
	files := map[string]string{"missing/cgroup.procs": "", "vanished/cgroup.procs": ""}
	for name := range readers {
		text, ok := zero[name]
		if !ok {
			text = "0\n"
		}
		files["zero/"+name], files["max/"+name], files["bad/"+name] = text, strings.Replace(text, "0", "max", 1), strings.ReplaceAll(text, "0", "-1")
	}
	fs := tree(t, files)
	zeroes, unlimited, none, bad, gone := group(t, fs, "zero"), group(t, fs, "max"), group(t, fs, "missing"), group(t, fs, "bad"), group(t, fs, "vanished")
	if err := os.RemoveAll(filepath.Join(fs.Mount(), "vanished")); err != nil {
		t.Fatal(err)
	}
	for name, from := range readers {
		if v, err := from(zeroes, buf); err != nil {
			t.Errorf("file %s with 0: value %v, error %v", name, v, err)
		}
		v, err := from(unlimited, buf)
		switch limit := v.(type) {
		case Limit:
			if err != nil || !limit.Unlimited {
				t.Errorf("file %s with max: value %v, error %v", name, v, err)
			}
		case CPUMax:
			if err != nil || !limit.Unlimited {
				t.Errorf("file %s with max: value %v, error %v", name, v, err)
			}
		default:
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("%s: a number that is \"max\": %v, %v, want ErrMalformed", name, v, err)
			}
		}
		if v, err := from(none, buf); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrVanished) {
			t.Errorf("missing file %s: value %v, error %v, want os.ErrNotExist", name, v, err)
		}
		if v, err := from(bad, buf); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "/bad/"+name) {
			t.Errorf("malformed file %s: value %v, error %v, want ErrMalformed with the file", name, v, err)
		}
		if v, err := from(gone, buf); !errors.Is(err, ErrVanished) || errors.Is(err, os.ErrNotExist) {
			t.Errorf("file %s of a vanished group: value %v, error %v, want ErrVanished", name, v, err)
		}
	}
}

// A missing file is tried again: its controller can be switched on later.
func TestAMissingFileMayComeLater(t *testing.T) {
	fs := tree(t, map[string]string{"a/cgroup.procs": ""})
	g, buf := group(t, fs, "a"), make([]byte, 256)
	if _, err := g.MemoryCurrent(buf); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(fs.Mount(), "a/memory.current"), []byte("7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if v, err := g.MemoryCurrent(buf); v != 7 || err != nil {
		t.Errorf("file that exists now: value %d, error %v", v, err)
	}
}

// The files visited by Record recreate the same tree.
func TestRecordMakesTheSameTree(t *testing.T) {
	files := map[string]string{
		"cgroup.controllers": "memory\n", "cgroup.procs": "1\n", "memory.stat": "anon 1\n",
		"kubepods/cgroup.procs": "", "kubepods/memory.max": "max\n", "kubepods/cgroup.kill": "", "kubepods/secret": "x",
		"kubepods/podu/cgroup.procs": "2\n", "kubepods/podu/memory.current": "3\n", "other/cgroup.procs": "4\n",
	}
	fs := tree(t, files)
	got := map[string]string{}
	visit := func(path string, content []byte) { got[path] = string(content) }
	for path, below := range map[string]bool{"": false, "/kubepods/": true, "none": true} {
		if err := fs.Record(path, below, visit); err != nil {
			t.Error(err)
		}
	}
	delete(files, "kubepods/secret")
	delete(files, "other/cgroup.procs")
	if !maps.Equal(got, files) {
		t.Errorf("files of the recorded tree = %q, want %q", got, files)
	}
}
