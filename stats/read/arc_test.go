package read

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/stats"
	"jettison/stats/read/procfs"
)

// zfsProc returns a proc file system, and the path of its arcstats.
func zfsProc(t *testing.T) (proc *procfs.Proc, arcStats string) {
	dir := t.TempDir()
	arcStats = filepath.Join(dir, "spl/kstat/zfs/arcstats")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "meminfo"), nil, 0o600), os.MkdirAll(filepath.Dir(arcStats), 0o700)); err != nil {
		t.Fatal(err)
	}
	proc, err := procfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proc.Close() })
	return proc, arcStats
}

// A leak since the last reading counts as taken from the cache. Without a new reading the last one
// stays, and is reported as old.
func TestLeakSinceTheReading(t *testing.T) {
	at := time.Unix(1000, 0)
	r := &arcReader{source: newSource("x", arcEvery, arcLimit, func(context.Context) (arcReading, error) { return arcReading{}, nil })}
	r.source.value, r.source.at = arcReading{shrinkable: 4000, workingSet: 100}, at // it does not run
	m := &stats.NodeMemoryStats{WorkingSetBytes: stats.Some[uint64](0)}
	for _, c := range []struct {
		workingSet, want uint64
		later            time.Duration
	}{{100, 4000, 0}, {50, 4000, 0}, {1100, 3000, 0}, {8000, 0, 0}, {1100, 3000, 2 * arcLimit}} {
		m.WorkingSetBytes.V = c.workingSet
		now := at.Add(c.later)
		if got := r.shrinkable(now, m); !got.OK || got.V != c.want {
			t.Errorf("with a working set of %d, %v after the reading: %v; want %d", c.workingSet, c.later, got, c.want)
		}
		if err := r.err(now); (err != nil) != (c.later > arcLimit) {
			t.Errorf("%v after the reading: error %v", c.later, err)
		}
	}
	m.WorkingSetBytes.OK = false
	if got := r.shrinkable(at, m); got.V != 3000 {
		t.Errorf("with an unknown working set: %v, want the last figure, 3000", got)
	}
}

// startARC waits for the first reading, and looks request further ones.
func TestARCReader(t *testing.T) {
	proc, name := zfsProc(t)
	m := &stats.NodeMemoryStats{CapacityBytes: stats.Some[uint64](9000), WorkingSetBytes: stats.Some[uint64](100)}
	if r := startARC(proc, m); r != nil || r.shrinkable(time.Now(), m).OK || r.err(time.Now()) != nil {
		t.Errorf("startARC() without ZFS = %v, want nil", r)
	}
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("size 4 5000\nc_min 4 1000\n")
	r := startARC(proc, m)
	defer r.close()
	<-r.source.answered
	limit := time.After(time.Minute)
	await := func(what string, done func(now time.Time) bool) {
		for tick := time.NewTicker(time.Millisecond); !done(time.Now()); {
			select {
			case <-tick.C:
			case <-limit:
				t.Fatal(what)
			}
		}
	}
	await("the value was never read", func(now time.Time) bool { return r.shrinkable(now, m).V == 4000 })
	write("size 4 3000\nc_min 4 1000\n")
	await("the new value was never read", func(now time.Time) bool { return r.shrinkable(now, m).V == 2000 })
	write("size 4 18446744073709551000\nc_min 4 1000\n")
	await("an impossible size was never refused", func(now time.Time) bool {
		r.shrinkable(now, m)
		return r.source.lastError() != nil
	})
}

// A read that blocks, as behind a throttled reader of the file, delays no look.
func TestBlockedARC(t *testing.T) {
	proc, name := zfsProc(t)
	if err := unix.Mkfifo(name, 0o600); err != nil { // opening it waits for a writer
		t.Fatal(err)
	}
	m := &stats.NodeMemoryStats{WorkingSetBytes: stats.Some[uint64](100)}
	r := startARC(proc, m)
	if got := r.shrinkable(time.Now(), m); got.OK || !errors.Is(r.err(time.Now()), errNoARC) {
		t.Errorf("reading = %v, error %v, want absent and an error", got, r.err(time.Now()))
	}
	r.close()
	w, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
}
